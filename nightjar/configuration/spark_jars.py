"""Chooses the jars that Spark is given."""

from pathlib import Path

from nightjar.jvm.jars import jars
from nightjar.storage.objects import ObjectPath
from nightjar.storage.paths import AnyPath


def spark_jars(*places: AnyPath) -> tuple[Path, ...]:
    """The jars that Spark needs besides its own to read and write these places.

    Raises:
        JarsError: they have not been resolved yet.
    """
    remote = any(isinstance(place, ObjectPath) for place in places)
    return (*jars("spark"), *(jars("s3") if remote else ()))
