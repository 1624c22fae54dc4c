"""Nights of a day that the real job has seen: what consumers of alerts are left with, and the truth."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import polars as pl

from nightjar.backfill.config import BackfillConfig
from nightjar.backfill.run import STAGES, Run
from nightjar.configuration.settings import Settings
from nightjar.demo.history import DemoHistory
from nightjar.kafka.readers import Reader
from nightjar.lake.scanning import scan
from nightjar.lake.tables import CORRECTIONS, RECONCILIATION, VIOLATIONS
from nightjar.operations.backfill_requests import request_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

from nightjar.kafka.rule_topics import rule_book
from nightjar.rules.truth import Truth
from tests.support.unions import united

DAY = datetime(2026, 1, 5, tzinfo=UTC)


@dataclass(frozen=True)
class Night:
    """The lake of a day that was played through the job, and the truth about it."""

    session: "SparkSession"
    config: BackfillConfig
    settings: Settings
    history: DemoHistory

    def run(self, run_id: str, *stages: str, **asked: Any) -> dict[str, Any]:
        """Some stages of a run of the day (none: all); what they counted."""
        request = request_of(DAY.date(), self.config.streams, run_id=run_id, **asked)
        run = Run(self.session, self.config, request)
        counts: dict[str, Any] = {}
        for stage in stages or STAGES:
            counts |= run.do(stage)
        return counts

    def alerts(self) -> pl.DataFrame:
        """Every record of the alerts topic, as a consumer of committed records reads it."""
        with Reader(self.settings, self.settings.alerts_topic) as reader:
            return pl.read_ndjson(b"\n".join(record.value for record in reader.all()), infer_schema_length=None)

    def results(self) -> dict[str, list[dict[str, Any]]]:
        """The rows of the tables of results, but for which run wrote them, by the tables' names."""
        found = {}
        for table in (VIOLATIONS, RECONCILIATION, CORRECTIONS):
            rows = scan(self.config.lake.root, table).drop("run_id", strict=False).collect()
            found[table.name] = rows.sort(rows.columns).to_dicts()
        return found


@dataclass(frozen=True)
class FirstNight:
    """What the first run of the day counted, and the results it left; alerts_before: the alerts topic before it."""

    night: Night
    alerts_before: pl.DataFrame
    counts: dict[str, Any]
    results: dict[str, list[dict[str, Any]]]


def truth(night: Night) -> pl.DataFrame:
    """What holds, by the engine at once over all events."""
    ruleset = rule_book(night.settings, night.config.streams).ruleset
    events = {name: share.events for name, share in night.history.streams.items()}
    events |= {name: united(stream, events) for name, stream in night.config.streams.items() if stream.members}
    return pl.concat(
        pl.DataFrame(Truth(night.config.streams[name], ruleset, each).violations()) for name, each in events.items()
    )


def latest_alerts(alerts: pl.DataFrame) -> set[tuple[str, str]]:
    """The alerts of a consumer who keeps the highest revision: id and measures."""
    last = alerts.sort("revision").unique("alert_id", keep="last")
    return {
        (row["alert_id"], json.dumps({k: v for k, v in row["measures"].items() if v is not None}, sort_keys=True))
        for row in last.filter(pl.col("kind") == "alert").to_dicts()
    }


def expected(night: Night) -> set[tuple[str, str]]:
    """The same of the truth."""
    return {
        (row["alert_id"], json.dumps(json.loads(row["measures"]), sort_keys=True)) for row in truth(night).to_dicts()
    }
