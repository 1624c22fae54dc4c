"""Spark's classes as a JVM has them once they are loaded and checked: a file that spares the next JVM that work.

How it works: `make jars` starts one session on a local broker, which does a little of all that the job and the lake's
jobs do, and has its JVM write what it has loaded as it ends (Java's class-data sharing). Later JVMs map that file: they
start in two thirds of the time.

What it does not do: decide whether the file fits. A JVM of another version, or with other jars, passes it over; then
`make jars` writes a new one.
"""

import hashlib
from importlib.util import find_spec
from pathlib import Path

from nightjar.jvm.jars import JarsError, jar_folder, java


def java_options() -> tuple[str, ...]:
    """What Spark's JVMs on this machine are given, so that they use the archive where there is one.

    Raises:
        JarsError: there is no java.
    """
    file = archive_file()
    # A file that does not fit is no reason to warn a person who started a job.
    return (f"-XX:SharedArchiveFile={file}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off") if file.is_file() else ()


def archive_file() -> Path:
    """Named after the Java and the Spark whose classes it has."""
    program, spec = Path(java()).resolve(), find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarsError("pyspark is not installed", remedy="Run `make setup`")
    parts = [(str(path), path.stat().st_mtime_ns) for path in (program, Path(spec.origin))]
    return jar_folder() / f"classes-{hashlib.sha256(repr(parts).encode()).hexdigest()[:12]}.jsa"
