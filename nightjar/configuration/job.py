"""Builds the job's configuration from the settings."""

from collections.abc import Mapping
from dataclasses import fields

from nightjar.configuration.kafka import kafka_config
from nightjar.configuration.schemas import schemas_of
from nightjar.configuration.settings import Settings
from nightjar.configuration.spark import spark_config
from nightjar.contracts.topics import Topics
from nightjar.rules.streams import Stream
from nightjar.streaming.config import JobConfig
from nightjar.streaming.state.metadata import buckets_of


def job_config(settings: Settings, streams: Mapping[str, Stream]) -> JobConfig:
    """The job's configuration.

    Raises:
        JarsError: the jars of the Kafka connector have not been resolved.
        SettingsError: one of the Kafka clients does not support a security setting.
    """
    return JobConfig(
        streams=streams,
        checkpoint=settings.checkpoint.resolve(),
        kafka=kafka_config(settings),
        spark=spark_config(settings, settings.checkpoint),
        topics=topics(settings),
        arrival=settings.arrival,
        activation_delay=settings.activation_delay,
        approvals=settings.approvals,
        forms=settings.forms,
        latency=settings.latency,
        real_time_batch=settings.real_time_batch,
        shuffle_partitions=settings.shuffle_partitions,
        buckets=settings.buckets or buckets_of(settings.checkpoint.resolve(), settings.latency),
        max_offsets_per_trigger=settings.max_offsets_per_trigger,
        max_retained_events=settings.max_retained_events,
        alerts_per_rule_and_hour=settings.alerts_per_rule_and_hour,
        slow_batch_warning=settings.slow_batch_warning,
        warm_up_batches=settings.warm_up_batches,
        lake=settings.lake.resolve(),
        schemas=schemas_of(settings, streams),
        priming_rate=settings.priming_rate,
    )


def topics(settings: Settings) -> Topics:
    """The names of all topics except the streams' own."""
    return Topics(**{each.name: getattr(settings, f"{each.name}_topic") for each in fields(Topics)})
