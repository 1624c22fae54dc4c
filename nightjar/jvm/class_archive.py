"""Locates the class-data-sharing archive of Spark's classes, which shortens the start of Spark's JVM.

How it works: `make jars` starts one session on a local broker that exercises a little of everything the job and the
lake's jobs do, and its JVM dumps the loaded and verified classes at exit (Java's class-data sharing). Later JVMs map
that file and start in two thirds of the time.

What it does not do: check whether the file fits. A JVM of another version, or with other jars, ignores it; `make jars`
then writes a new one.
"""

import hashlib
from importlib.util import find_spec
from pathlib import Path

from nightjar.jvm.bridge import bridge_jar
from nightjar.jvm.jars import JarsError, jar_folder, java


def java_options() -> tuple[str, ...]:
    """Options that make Spark's JVMs on this machine use the archive, if it exists.

    Raises:
        JarsError: java was not found.
    """
    file = archive_file()
    # Logging is off because an archive that does not fit only costs time; it needs no warning.
    return (f"-XX:SharedArchiveFile={file}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off") if file.is_file() else ()


def archive_file() -> Path:
    """Path of the archive; its name depends on what it was made of: Java, Spark, and the operator of real time."""
    program, spec = Path(java()).resolve(), find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarsError("pyspark is not installed", remedy="Run `make setup`")
    parts = [bridge_jar().name, *((str(path), path.stat().st_mtime_ns) for path in (program, Path(spec.origin)))]
    return jar_folder() / f"classes-{hashlib.sha256(repr(parts).encode()).hexdigest()[:12]}.jsa"
