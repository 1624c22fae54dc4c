"""Two installations of nightjar on one broker: topics, data folders and lakes of their own, and all else the same."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from nightjar.backfill.config import BackfillConfig
from nightjar.backfill.publish.publication import publish
from nightjar.configuration.backfill import backfill_config
from nightjar.configuration.settings import Settings
from nightjar.kafka import topics
from nightjar.kafka.clients import producer
from nightjar.kafka.readers import Reader
from nightjar.lake.archive import archive
from nightjar.lake.scanning import columns, scan
from nightjar.lake.tables import ALERTS, CORRECTIONS, events_table
from nightjar.local.kafka import LocalKafka
from nightjar.rules.alert_ids import alert_id
from nightjar.rules.streams import Stream, load_streams
from nightjar.rules.timestamps import microseconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(300)]

EVENTS = 20
AT = datetime(2026, 1, 5, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Installation:
    """One of the two, and what it has."""

    name: str
    settings: Settings
    stream: Stream
    config: BackfillConfig

    @property
    def alert(self) -> str:
        """The id of the alert that it corrects."""
        return alert_id("many", 1, f"{self.name}00", microseconds(AT), "{}")

    def correction(self) -> pl.DataFrame:
        """One of its own."""
        given = {
            "alert_id": self.alert,
            "revision": 1,
            "kind": "alert",
            "rule_id": "many",
            "rule_version": 1,
            "rule_state": "active",
            "stream": self.stream.name,
            "group": "{}",
            "event_id": f"{self.name}00",
            "event_time": AT,
            "measures": "{}",
            "severity": "high",
            "text": "",
            "muted": False,
            "cause": "late_event",
        }
        return pl.DataFrame([dict.fromkeys(CORRECTIONS.columns) | given], schema=columns(CORRECTIONS))

    def published(self) -> list[str]:
        """The ids of what is on its topic of alerts, as a reader of committed records has them."""
        with Reader(self.settings, self.settings.alerts_topic) as reader:
            return [json.loads(record.value)["alert_id"] for record in reader.all()]

    def archived(self) -> tuple[list[str], list[str]]:
        """The ids of the events and of the alerts in its lake."""
        root = self.config.lake.root
        events = scan(root, events_table(self.stream)).select(self.stream.event_id).collect().to_series()
        return events.sort().to_list(), scan(root, ALERTS).select("alert_id").collect().to_series().to_list()


@pytest.fixture
def two(broker: LocalKafka, tmp_path: Path) -> tuple[Installation, Installation]:
    """Both, with some events sent to each."""

    def installed(name: str) -> Installation:
        mark = f"{tmp_path.name}-{name}"
        named = {
            key: f"{mark}-{value}" for key, value in broker.settings.model_dump().items() if key.endswith("_topic")
        }
        settings = broker.settings.model_copy(update={**named, "partitions": 1, "data_dir": tmp_path / name})
        stream = replace(load_streams()["logins"], topic=f"{mark}-logins")
        topics.ensure(settings, [stream])
        with producer(settings) as client:
            for number in range(EVENTS):
                event = dict.fromkeys(stream.fields, "x") | {"login_id": f"{name}{number:02}"}
                client.send(stream.topic, json.dumps(event | {"event_time": "2026-01-05T12:00:00Z"}).encode())
        return Installation(name, settings, stream, backfill_config(settings, {stream.name: stream}))

    return installed("a"), installed("b")


def test_neither_disturbs_the_other(spark: "SparkSession", two: tuple[Installation, Installation]) -> None:
    """Their archives run at the same time, and one publishes a correction while the other is about to: each lake then
    has the events and the correction of its own installation, and each topic the correction."""
    one, other = two

    def archive_both() -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda each: archive(spark, each.config.lake), two))

    def meanwhile() -> None:
        assert publish(other.config, other.correction(), {}, lambda: None) == 1

    archive_both()
    assert publish(one.config, one.correction(), {}, meanwhile) == 1
    archive_both()
    for each in two:
        assert each.published() == [each.alert]
        assert each.archived() == ([f"{each.name}{number:02}" for number in range(EVENTS)], each.published())
