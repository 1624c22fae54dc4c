"""The size and stages of micro-batches follow the load, and changing them changes no alert."""

import json
import time
from itertools import count, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nightjar.cases.model import Message, Step
from nightjar.streaming.driver import batch_size, stages
from nightjar.streaming.driver.batch_size import BatchSize
from nightjar.streaming.driver.stages import Stages
from tests.support.job_host import PATIENCE, ends_of_batches, logins_job
from tests.support.logins import NOON, login, more_than

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from nightjar.streaming.config import JobConfig

FIRST = 20
MANY = more_than(50)


def after(size: BatchSize, *batches: tuple[int, float]) -> int:
    """What is wanted after batches of so many rows and seconds."""
    for rows, seconds in batches:
        size.take({"numInputRows": rows, "durationMs": {"triggerExecution": 1000 * seconds}})
    return size.wanted


def test_it_grows_after_some_quick_batches_that_were_full() -> None:
    size = BatchSize(None)
    first = size.records
    assert after(size, (first, 0.4), (first // 2, 0.1), (first, 0.4)) == first
    assert after(size, (first, 0.5)) == 5 * first
    size.change()
    assert size.records == 5 * first
    assert after(size, *[(5 * first, 1.9)] * 5) == 5 * first


def test_it_shrinks_at_once_after_a_slow_one() -> None:
    size = BatchSize(None)
    assert after(size, (size.records, 20.0)) == size.records // 10
    size.change()
    assert after(size, (size.records, 10_000.0)) == 500


def test_a_fixed_one_stays() -> None:
    size = BatchSize(1000)
    assert after(size, (1000, 60.0), (1000, 60.0)) == 1000


def after_rows(chosen: Stages, *rows: int) -> int:
    """What is wanted after batches of so many rows."""
    for number in rows:
        chosen.take({"numInputRows": number})
    return chosen.wanted


def test_two_after_three_large_batches_in_a_row() -> None:
    chosen = Stages(one_machine=True)
    assert after_rows(chosen, 20_000, 20_000, 100, 20_000, 20_000) == 1
    assert after_rows(chosen, 20_000) == 2
    chosen.change()
    assert chosen.number == 2
    assert not chosen.is_unfit


def test_one_again_only_after_many_small_batches_in_a_row() -> None:
    chosen = Stages(one_machine=True)
    after_rows(chosen, *[20_000] * 3)
    chosen.change()
    assert after_rows(chosen, *[100] * 49) == 2
    assert after_rows(chosen, 8_000) == 2, "neither large nor small: it is as it was"
    assert after_rows(chosen, *[100] * 50) == 1


def test_on_several_machines_there_are_always_two() -> None:
    chosen = Stages(one_machine=False)
    assert chosen.number == 2
    assert after_rows(chosen, *[100] * 60) == 2


def sizes(config: "JobConfig", topic: str) -> list[int]:
    """How many records of the topic each batch has read, without those that read none."""
    read = [sum(end.get(topic, {}).values()) for end in ends_of_batches(config)]
    return [end - begin for begin, end in pairwise(read) if end > begin]


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_backlog_is_read_in_larger_batches_and_each_event_counts_once(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_size, "_FIRST", FIRST)
    monkeypatch.setattr(batch_size, "_AIM", 1e9)  # so that any batch is quick
    sent = count()

    def backlog() -> tuple[Message, ...]:
        """Ten batches of the first size, that arrive at once."""
        return tuple(login(next(sent)) for _ in range(10 * FIRST))

    with logins_job(spark, tmp_path) as (_, job):
        job.take(Step(NOON - 1, crash=False, rules=(json.dumps(MANY).encode(),), events=()))
        topic = job.streams["logins"].topic
        deadline = time.monotonic() + PATIENCE
        # the driver sees what batches took once per second, and meanwhile the query may have read all there is
        while max(read := sizes(job.config, topic), default=0) <= FIRST:
            assert time.monotonic() < deadline, f"batches stay as small as they are: {read}"
            job.take(Step(NOON, crash=False, rules=(), events=backlog()))
        reported = [(alert["event_id"], alert["text"]) for alert in job.outcome().alerts]
    assert read[:3] == [FIRST] * 3, "the size follows from three full batches"
    assert sorted(reported) == sorted((f"l{number}", str(number + 1)) for number in range(50, next(sent)))


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_job_changes_its_stages_and_each_event_counts_once(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "_MANY", 20)
    monkeypatch.setattr(stages, "_LARGE_BATCHES", 1)
    monkeypatch.setattr(stages, "_SMALL_BATCHES", 3)
    changes: list[int] = []
    change = Stages.change

    def noted(chosen: Stages) -> None:
        change(chosen)
        changes.append(chosen.number)

    monkeypatch.setattr(Stages, "change", noted)
    sent = count()

    def logins(events: int) -> tuple[Message, ...]:
        return tuple(login(next(sent)) for _ in range(events))

    with logins_job(spark, tmp_path) as (_, job):
        job.take(Step(NOON - 1, crash=False, rules=(json.dumps(MANY).encode(),), events=()))
        deadline = time.monotonic() + PATIENCE
        while changes[:3] != [2, 1, 2]:
            assert time.monotonic() < deadline, f"no change is made after {changes}"
            job.take(Step(NOON, crash=False, rules=(), events=logins(1 if changes[-1:] == [2] else 40)))
        reported = [(alert["event_id"], alert["text"]) for alert in job.outcome().alerts]
    assert sorted(reported) == sorted((f"l{number}", str(number + 1)) for number in range(50, next(sent)))
