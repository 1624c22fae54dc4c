"""Builds the backfill's configuration from the settings."""

from collections.abc import Mapping

from nightjar.backfill.config import BackfillConfig
from nightjar.configuration.lake import lake_config
from nightjar.configuration.settings import Settings
from nightjar.expectations.own import own_expectations
from nightjar.expectations.suites import events_suite, reconciliation_suite, violations_suite
from nightjar.lake.tables import events_table
from nightjar.rules.streams import Stream


def backfill_config(settings: Settings, streams: Mapping[str, Stream], *, spark: bool = True) -> BackfillConfig:
    """The backfill's configuration. spark: see `lake_config`.

    Raises:
        JarsError: Spark's jars have not been resolved.
        SettingsError: one of the Kafka clients does not support a security setting.
        DeclarationError: the folder of expectations has one that cannot be used.
    """
    events = [events_suite(stream, events_table(stream).columns) for stream in streams.values()]
    return BackfillConfig(
        lake=lake_config(settings, streams, spark=spark),
        arrival=settings.arrival,
        staging_retention=settings.staging_retention,
        pending_days=settings.pending_days,
        alerts_per_rule_and_hour=settings.alerts_per_rule_and_hour,
        own=own_expectations(settings.expectations, [*events, violations_suite(), reconciliation_suite(0, 0)]),
    )
