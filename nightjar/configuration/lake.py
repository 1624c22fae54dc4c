"""Builds the configuration of the lake's jobs from the settings."""

from collections.abc import Mapping

from nightjar.configuration.job import topics
from nightjar.configuration.kafka_options import python_options, spark_options
from nightjar.configuration.settings import Settings
from nightjar.configuration.spark_jars import spark_jars
from nightjar.jvm.class_archive import java_options
from nightjar.lake.config import LakeConfig
from nightjar.rules.streams import Stream


def lake_config(settings: Settings, streams: Mapping[str, Stream], *, spark: bool = True) -> LakeConfig:
    """The lake's configuration. spark: False for what starts no Spark session, which then needs no jars and no Java.

    Raises:
        JarsError: Spark's jars have not been resolved.
        SettingsError: one of the Kafka clients does not support a security setting.
    """
    return LakeConfig(
        root=settings.lake.resolve(),
        streams=streams,
        spark_kafka=spark_options(settings),
        jars=spark_jars(settings.lake) if spark else (),
        topics=topics(settings),
        master=settings.spark_master,
        code=settings.code_archive and settings.code_archive.resolve(),
        spark_conf=settings.spark_conf,
        driver_memory=settings.driver_memory,
        java_options=java_options() if spark else (),
        python_kafka=python_options(settings),
    )
