"""Builds the configuration of the lake's jobs from the settings."""

from collections.abc import Mapping

from nightjar.configuration.job import topics
from nightjar.configuration.kafka import kafka_config
from nightjar.configuration.schemas import schemas_of
from nightjar.configuration.settings import Settings
from nightjar.configuration.spark import spark_config
from nightjar.ingestion.spark_config import SparkConfig
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
        kafka=kafka_config(settings),
        spark=spark_config(settings, settings.lake) if spark else SparkConfig(),
        topics=topics(settings),
        schemas=schemas_of(settings, streams),
    )
