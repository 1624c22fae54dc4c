"""A job and a night whose checkpoint and lake are in an object store, as people run them.

`make cluster-test` runs all of it; `make test` leaves out what takes longest.
"""

import json
import os
import signal
from pathlib import Path

import polars as pl
import pytest

from nightjar.lake.scanning import scan
from nightjar.lake.tables import ALERTS, RECONCILIATION, events_table
from nightjar.local.job_process import JobProcess
from nightjar.operations.job_watch import await_consumed
from nightjar.operations.locks import AlreadyRunningError, refuse_running
from tests.object_store.conftest import on_each_store
from tests.support.command import run
from tests.support.long import long
from tests.support.object_store import ObjectStore
from tests.support.places import MINUTE, RULES, SECONDS, Place, final, history, place_of, truth, until
from tests.support.topics import TestTopics

pytestmark = [on_each_store, pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]


def place_in(store: ObjectStore, topics: TestTopics, folder: Path) -> Place:
    """Topics, and folders of the store."""
    place = place_of(topics, folder)
    own = place.topics.settings.model_copy(update=store.settings(folder.name))
    return Place(TestTopics(own, place.topics.streams), folder)


def until_read(place: Place, job: JobProcess, share: float, events: int) -> None:
    topic = place.topics.streams["transactions"].topic
    goal = share * events
    until(job, lambda: sum(place.committed.get(topic, {}).values()) >= goal, f"{share} of the stream")


def reported(place: Place) -> int:
    """How many transactions the job has reported that it has read; it does so once per second."""
    topic = place.topics.streams["transactions"].topic
    reports = place.read(place.topics.settings.job_progress_topic)
    return max((sum((each.get("consumed") or {}).get(topic, {}).values()) for each in reports), default=0)


def kill(job: JobProcess) -> None:
    """End the driver, its JVM and its Python workers, as a power cut would."""
    assert job.pid is not None
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    job.stop()


def test_a_killed_job_resumes_and_the_night_agrees(
    store: ObjectStore, kafka_topics: TestTopics, tmp_path: Path
) -> None:
    """Nothing is lost, nothing is announced under a new id, and the lake's own commands work on what came of it."""
    place = place_in(store, kafka_topics, tmp_path)
    given, (events, _) = store.environment(tmp_path.name), history(1000)
    place.publish(*RULES, at=-MINUTE)
    with place.job(max_offsets_per_trigger=150, **given) as job:
        until(job, lambda: place.settled(*((r["id"], 1) for r in RULES)), "the rules to be active")
        place.send(events)
        until_read(place, job, 0.4, len(events))
        kill(job)
    assert not place.consumed()
    with place.job(**given) as job:
        await_consumed(place.topics.settings, ["transactions"], job, SECONDS)
        assert job.stop() == 0
    expected = truth(place, events)
    assert final(place) == expected

    environment = place.environment(**given)
    done = run("backfill", "--day", "2024-03-01", "--json", environment=environment, folder=tmp_path)
    lake, stream = place.topics.settings.lake, place.topics.streams["transactions"]
    assert scan(lake, events_table(stream)).select(pl.len()).collect().item() == len(events)
    assert set(scan(lake, RECONCILIATION).collect().get_column("outcome")) == {"matched"}, done.stdout
    assert (lake / "data_docs" / "site" / "index.html").is_file()
    alert = next(iter(expected))
    shown = run("explain", alert, "--json", environment=environment, folder=tmp_path)
    assert alert in shown.stdout
    kept = run("lake", "maintain", "--json", environment=environment, folder=tmp_path)
    assert ALERTS.name in kept.stdout
    assert store.secret not in (tmp_path / "job.log").read_text() + done.stderr


@long
def test_a_rebuilt_checkpoint_goes_on_from_the_lake(
    store: ObjectStore, kafka_topics: TestTopics, tmp_path: Path
) -> None:
    """After a crash, and again after a stop: the second rebuild replaces a checkpoint that was itself rebuilt."""
    place = place_in(store, kafka_topics, tmp_path)
    given, (events, _) = store.environment(tmp_path.name), history(1200)
    parts = events[:500], events[500:900], events[900:]
    place.publish(*RULES, at=-MINUTE)
    with place.job(max_offsets_per_trigger=150, **given) as job:
        until(job, lambda: place.settled(*((r["id"], 1) for r in RULES)), "the rules to be active")
        place.send(parts[0])
        until_read(place, job, 0.5, len(parts[0]))
        until(job, lambda: reported(place) > 0, "a report of it")
        kill(job)
    for part in parts[1:]:
        done = run("stream", "rebuild", "--json", environment=place.environment(**given), folder=tmp_path)
        assert json.loads(done.stdout)["events"], done.stderr
        place.send(part)
        with place.job(**given) as job:
            await_consumed(place.topics.settings, ["transactions"], job, SECONDS)
            assert job.stop() == 0
    assert final(place) == truth(place, events)


@long
def test_a_paused_job_is_replaced_and_cannot_write_when_it_returns(
    store: ObjectStore, kafka_topics: TestTopics, tmp_path: Path
) -> None:
    """As on two hosts: the second job waits until the first one is silent; when the first one goes on, it ends itself.

    Whatever either of them announced, of each alert and revision there is one content, and the last ones are the truth.
    """
    place = place_in(store, kafka_topics, tmp_path)
    (tmp_path / "other").mkdir()
    other = Place(place.topics, tmp_path / "other")
    given, (events, _) = store.environment(tmp_path.name), history(3000)
    place.publish(*RULES, at=-MINUTE)
    with place.job(max_offsets_per_trigger=150, **given) as first:
        until(first, lambda: place.settled(*((r["id"], 1) for r in RULES)), "the rules to be active")
        with pytest.raises(AlreadyRunningError, match="a job is already running on it"):
            refuse_running(place.topics.settings.checkpoint)
        place.send(events)
        until_read(place, first, 0.3, len(events))
        assert first.pid is not None
        os.killpg(first.pid, signal.SIGSTOP)
        assert not place.consumed()
        with other.job(max_offsets_per_trigger=150, **given) as second:
            until_read(place, second, 0.7, len(events))
            os.killpg(first.pid, signal.SIGCONT)
            assert first.wait(SECONDS)
            assert "another process has taken over" in first.tail(40)
            await_consumed(place.topics.settings, ["transactions"], second, SECONDS)
            assert second.stop() == 0
    assert final(place) == truth(place, events)
