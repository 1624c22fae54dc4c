"""Compiles EngineBridge.java, the operator of real-time queries, with the Janino that pyspark has: no JDK is needed.

The jar is beside the resolved ones, and its name depends on the source: a changed one is never used compiled.
"""

import hashlib
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from nightjar.jvm.jars import JarsError, jar_folder

SOURCE = Path(__file__).with_name("EngineBridge.java")
_NAME = "engine-bridge-"


def bridge_jar() -> Path:
    """Path of the jar; it exists once `compile_bridge` has run."""
    return jar_folder() / f"{_NAME}{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]}.jar"


def compile_bridge() -> Path:
    """Write the jar unless it exists.

    Raises:
        JarsError: Spark's jars are missing, or Java could not start.
    """
    jar = bridge_jar()
    if jar.is_file():
        return jar
    if not jar.parent.is_dir():
        raise JarsError("Spark's jars are missing", where=str(jar.parent), remedy="Run `nightjar jars`")
    sys.stderr.write("==> compiling the operator of real-time queries\n")
    with tempfile.TemporaryDirectory(prefix=".bridge-", dir=jar.parent) as folder:
        made = Path(folder) / jar.name
        with zipfile.ZipFile(made, "w") as archive:
            for name, code in sorted(bytecode(SOURCE.read_text()).items()):
                archive.writestr(zipfile.ZipInfo(f"{name.replace('.', '/')}.class"), code)
        for old in jar.parent.glob(f"{_NAME}*.jar"):
            old.unlink()
        made.rename(jar)
    return jar


def bytecode(source: str) -> dict[str, bytes]:
    """The compiled classes of a Java file, by name.

    Raises:
        JarsError: Java could not start, or the source is wrong.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    try:
        gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    except PySparkException as failure:
        raise JarsError(f"Java could not start: {failure}", remedy="Install Java 17, or set JAVA_HOME to it") from None
    try:
        compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader())
        compiler.cook(source)
        return {str(name): bytes(code) for name, code in compiler.getBytecodes().items()}
    except Py4JJavaError as failure:
        raise JarsError(f"{SOURCE.name} cannot be compiled: {failure.java_exception}") from None
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()  # makes the JVM exit
        gateway.proc.wait()
