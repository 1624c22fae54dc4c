"""Builds what Spark programs are given from the settings."""

from nightjar.configuration.settings import Settings
from nightjar.ingestion.spark_config import SparkConfig
from nightjar.jvm.bridge import bridge_jar
from nightjar.jvm.class_archive import java_options
from nightjar.jvm.jars import jars
from nightjar.storage.paths import AnyPath, access_of


def spark_config(settings: Settings, place: AnyPath) -> SparkConfig:
    """The configuration of a program that reads and writes this place.

    Raises:
        JarsError: Spark's jars have not been resolved.
    """
    access = access_of(place)
    found = [*jars("spark"), *(jars(access.jars) if access else ())]
    if bridge_jar().is_file():  # only real-time queries need it
        found.append(bridge_jar())
    return SparkConfig(
        master=settings.spark_master,
        driver_memory=settings.driver_memory,
        jars=tuple(found),
        java_options=java_options(),
        conf=settings.spark_conf,
        code=settings.code_archive and settings.code_archive.resolve(),
    )
