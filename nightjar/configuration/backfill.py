"""Builds the backfill's configuration from the settings."""

from collections.abc import Mapping

from nightjar.backfill.config import BackfillConfig
from nightjar.configuration.lake import lake_config
from nightjar.configuration.settings import Settings
from nightjar.rules.streams import Stream


def backfill_config(settings: Settings, streams: Mapping[str, Stream], *, spark: bool = True) -> BackfillConfig:
    """The backfill's configuration. spark: see `lake_config`.

    Raises:
        JarsError: Spark's jars have not been resolved.
        SettingsError: one of the Kafka clients does not support a security setting.
    """
    return BackfillConfig(
        lake=lake_config(settings, streams, spark=spark),
        arrival=settings.arrival,
        staging_retention=settings.staging_retention,
        pending_days=settings.pending_days,
        alerts_per_rule_and_hour=settings.alerts_per_rule_and_hour,
        expectations=settings.expectations,
    )
