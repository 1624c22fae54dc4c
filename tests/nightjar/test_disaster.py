"""Disasters on a real Kafka and a real job: what is lost is what docs/how-to/disaster-recovery.md says, and no more."""

import io
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from rich.console import Console

from nightjar.cases import Step
from nightjar.configuration.lake import lake_config
from nightjar.configuration.settings import Settings
from nightjar.kafka import rule_topics, topics
from nightjar.kafka.clients import admin
from nightjar.lake.archive import archive
from nightjar.lake.scanning import scan
from nightjar.lake.tables import ALERTS, RULES, events_table
from nightjar.operations.rebuild import rebuild
from nightjar.operations.rule_restore import Restored, restore_rules
from nightjar.rules.errors import NightjarError
from nightjar.rules.streams import Stream
from nightjar.terminal.stages import Stages
from tests.support.job_host import CaseRun
from tests.support.places import MINUTE, NOON, Place, Row, final, history, place_of, truth
from tests.support.places import RULES as PUBLISHED
from tests.support.topics import TestTopics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

QUIET = Stages(Console(file=io.StringIO()))
LATER = PUBLISHED[0] | {"id": "published-later"}


@pytest.fixture
def place(kafka_topics: TestTopics, tmp_path: Path) -> Place:
    """Topics whose producers give the arrival: what happens follows from the events alone."""
    own = TestTopics(kafka_topics.settings, {"transactions": kafka_topics.streams["transactions"]})
    return place_of(own, tmp_path, warm_up_batches=0, buckets=2, partitions=1)


def processed(place: Place, spark: "SparkSession", events: list[tuple[int, Row]], *rules: Row) -> None:
    """The job runs, gets rules, then events, and stops when it has processed them."""
    settings, streams = place.topics.settings, place.topics.streams
    with CaseRun(spark, settings, streams) as job:
        if rules:
            messages = tuple(json.dumps(rule).encode() for rule in rules)
            job.take(Step(NOON - MINUTE, crash=False, rules=messages, events=()))
        place.send(events)
        job.wait_for(place.consumed, "all events")
        job.await_reported()


def moved(place: Place, folder: Path) -> Place:
    """The same topics, with a new folder for checkpoint and lake."""
    settings = place.topics.settings.model_copy(update={"data_dir": folder})
    return Place(TestTopics(settings, place.topics.streams), folder)


def lose_kafka(settings: Settings, streams: dict[str, Stream]) -> None:
    """Every topic and all that was on it; the new ones are empty."""
    names = [topic.name for topic in topics.topics(settings, streams.values())]
    with admin(settings) as client:
        client.delete_topics(names)
    wait_until_gone(settings, set(names))
    topics.ensure(settings, streams.values())


def wait_until_gone(settings: Settings, names: set[str]) -> None:
    """Deleting takes the broker a moment."""
    import time

    deadline = time.monotonic() + 60
    with admin(settings) as client:
        while left := names & set(client.list_topics()):
            assert time.monotonic() < deadline, left


def test_a_lost_checkpoint_loses_nothing(place: Place, spark: "SparkSession") -> None:
    """Rebuilt from lake and Kafka, the job goes on: no alert is missing, twice, or under another id."""
    events, _ = history(300)
    first, rest = events[:200], events[200:]
    processed(place, spark, first, *PUBLISHED)
    archive(spark, lake_config(place.topics.settings, place.topics.streams))
    shutil.rmtree(place.topics.settings.checkpoint)

    done = rebuild(place.topics.settings, place.topics.streams, QUIET, spark)
    assert done.events > 0
    processed(place, spark, rest)
    assert final(place) == truth(place, events)


def test_a_lake_from_a_copy_gets_the_rest_from_kafka(place: Place, spark: "SparkSession") -> None:
    """The copy's archive goes on where it had stopped: each record once, none missing."""
    settings, streams = place.topics.settings, place.topics.streams
    events, _ = history(100)
    place.send(events[:60])
    archive(spark, lake_config(settings, streams))
    shutil.copytree(settings.lake, place.folder / "copy")
    place.send(events[60:])
    archive(spark, lake_config(settings, streams))
    shutil.rmtree(settings.lake)

    shutil.move(place.folder / "copy", settings.lake)
    archive(spark, lake_config(settings, streams))
    rows = scan(settings.lake, events_table(streams["transactions"])).select("partition", "offset").collect()
    assert sorted(rows.rows()) == [(0, offset) for offset in range(len(events))]


def test_lost_kafka_data_loses_what_was_not_archived(place: Place, spark: "SparkSession") -> None:
    """The lake keeps what it had; rules keep their versions. Windows begin empty, with or without the checkpoint."""
    settings, streams = place.topics.settings, place.topics.streams
    events, _ = history(400)
    archived, unarchived, after = events[:200], events[200:260], events[260:]
    processed(place, spark, archived, *PUBLISHED, PUBLISHED[0] | {"description": "second version"})
    archive(spark, lake_config(settings, streams))
    announced = {row["alert_id"] for row in place.alerts()}
    versions = versions_of(place)
    processed(place, spark, unarchived, LATER)
    lost = {row["alert_id"] for row in place.alerts()} - announced
    assert lost, "else this shows nothing"
    lose_kafka(settings, streams)

    # a checkpoint and a lake belong to the records of the Kafka that was
    with pytest.raises(NightjarError, match="Kafka has deleted records before they were archived"):
        archive(spark, lake_config(settings, streams))
    with pytest.raises(NightjarError):
        rebuild(settings, streams, QUIET, spark)
    shutil.rmtree(settings.checkpoint)  # losing it, too, makes no difference

    new = moved(place, place.folder / "new")
    done = restore_rules(settings, streams, settings.lake)
    assert done == Restored(len(PUBLISHED) + 1, len(answers_of(place)))
    assert versions_of(new) == versions, "the rule that was published after the last archive is lost"
    with pytest.raises(NightjarError, match="had records already"):
        restore_rules(settings, streams, settings.lake)
    processed(new, spark, after)
    assert final(new) == truth(new, after), "as if nothing had been before"
    archive(spark, lake_config(new.topics.settings, streams))

    kept = scan(settings.lake, events_table(streams["transactions"])).collect()
    assert kept.height == len(archived)
    assert set(scan(settings.lake, ALERTS).collect()["alert_id"]) == announced
    assert not announced & lost
    assert scan(settings.lake, RULES).select(pl.len()).collect().item() == len(PUBLISHED) + 1
    fresh = scan(new.topics.settings.lake, events_table(streams["transactions"])).collect()
    assert fresh.height == len(after), "the events in between are nowhere"


def versions_of(place: Place) -> dict[tuple[str, int], int]:
    """The effective time of each rule version."""
    book = rule_topics.rule_book(place.topics.settings, place.topics.streams)
    return {(version.rule.id, version.version): version.effective for version in book.ruleset.versions}


def answers_of(place: Place) -> list[Row]:
    """The answers on the topic."""
    return place.read(place.topics.settings.rule_status_topic)
