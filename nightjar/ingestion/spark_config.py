"""How a Spark program runs, passed in by the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class SparkConfig:
    """The JVM of a program's driver, and its Spark settings."""

    master: str = "local[*,4]"
    driver_memory: str = "2g"
    """Of the driver's JVM, as Java writes sizes."""
    jars: tuple[Path, ...] = ()
    """Those that pyspark does not ship."""
    java_options: tuple[str, ...] = ()
    """Of the driver's JVM."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark, which override those of the program."""
    code: Path | None = None
    """The archive of `make dist`, for executors of a cluster whose machines have no copy of this code and the jars;
    None: they have, at the same paths as here."""
