"""The job as people run it, `nightjar stream` in a process of its own: killed, stopped, replanned, refused.

A start takes many seconds, so each test goes through a whole story.
"""

import os
import signal
from collections.abc import Iterable
from pathlib import Path

import psutil
import pytest

from nightjar.configuration.job import job_config
from nightjar.local.job_process import JobProcess
from nightjar.operations.job_watch import await_consumed, await_running
from nightjar.rules.rulebook import ShuffleKey
from nightjar.rules.timestamps import iso_text
from nightjar.streaming.state.checkpoint import Checkpoint
from tests.support.command import run
from tests.support.places import MINUTE, NOON, RULES, SECONDS, Place, Row, final, history, place_of, rule, truth, until
from tests.support.topics import TestTopics

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def place(kafka_topics: TestTopics, tmp_path: Path) -> Place:
    """A place of the test's own."""
    return place_of(kafka_topics, tmp_path)


def kill(job: JobProcess) -> None:
    """End the job and everything it has started, as a power cut would."""
    assert job.pid is not None
    os.killpg(job.pid, signal.SIGKILL)
    assert job.stop() == -signal.SIGKILL


def kill_workers(job: JobProcess) -> None:
    """End the Python processes that do the job's tasks, as a machine does that is out of memory."""
    for process in psutil.Process(job.pid).children(recursive=True):
        if "python" in process.name():
            process.kill()


def test_killed_in_mid_replay_it_ends_with_the_same_alerts(place: Place) -> None:
    """Twice everything is killed between or within batches, then the workers in the middle of a task, which is done
    again; in the end the alerts are the truth, and all is counted."""
    events, repeated = history(3000)
    topic = place.topics.streams["transactions"].topic
    place.publish(*RULES, at=-MINUTE)
    with place.job(max_offsets_per_trigger=250) as job:
        until(job, lambda: place.settled(*((r["id"], 1) for r in RULES)), "the rules to be active")
        place.send(events)
        for share in (0.2, 0.5):
            goal = share * len(events)
            until(job, lambda goal=goal: sum(place.committed.get(topic, {}).values()) >= goal, f"{share} of the replay")
            kill(job)
            assert not place.consumed()
            job.start()
        await_running(place.topics.settings, job)
        goal = 0.7 * len(events)
        until(job, lambda: sum(place.committed.get(topic, {}).values()) >= goal, "the rest of the replay")
        lives = job.pid
        kill_workers(job)
        assert not place.consumed()
        state = await_consumed(place.topics.settings, ["transactions"], job, SECONDS)
        assert job.pid == lives

    counts = state.counts("transactions")
    assert (counts["events"], counts["late"], counts["duplicates"]) == (len(events), 0, repeated)
    expected = truth(place, events)
    assert {row["rule_id"] for row in expected.values()} == {r["id"] for r in RULES}
    assert final(place) == expected


def payment(number: int, at: int, amount: int) -> tuple[int, Row]:
    """A transaction that arrives at its time."""
    event = {
        "transaction_id": f"e{number}",
        "event_time": iso_text(NOON + at),
        "customer_id": "ann",
        "terminal_id": "m1",
        "amount": amount,
    }
    return NOON + at, event


def dropped(place: Place) -> set[ShuffleKey]:
    """The shuffle keys that the job has dropped."""
    found = Checkpoint(job_config(place.topics.settings, place.topics.streams)).metadata
    assert found is not None
    return set(found.shuffle_keys) - set(found.in_use)


def test_rules_and_shuffle_keys_change_while_it_runs_and_a_stop_loses_nothing(place: Place) -> None:
    """Each event is judged by the rules of its time, once; also by rules that need shuffle keys the job must make
    first, which count what came before as well (S5.7)."""
    large = rule("large", ["customer_id"], "amount > 100")
    of_all = rule("of-all", [], "payments = 6", payments={"count": "*", "over": "1h"})
    same = rule("same-amount", ["amount"], "payments >= 2", payments={"count": "*", "over": "1h"})

    def rules_at(
        minute: int, *messages: Row, active: Iterable[tuple[str, int]] = (), accepted: Iterable[tuple[str, int]] = ()
    ) -> None:
        place.publish(*messages, at=minute * MINUTE)
        until(job, lambda: place.settled(*active), f"{list(active)} to be active")
        until(job, lambda: place.settled(*accepted, answer="ACCEPTED"), f"{list(accepted)} to be accepted")

    def event_at(minute: int, amount: int) -> None:
        place.send([payment(minute, minute * MINUTE, amount)])
        until(job, place.consumed, f"the event of minute {minute}")

    with place.job() as job:
        rules_at(0, large, active=[("large", 1)])
        event_at(1, 101)
        rules_at(2, large | {"when": "amount > 50"}, active=[("large", 2)])
        event_at(3, 60)
        rules_at(4, {"control": "pause", "rule": "large"}, accepted=[("large", 3)])
        event_at(5, 200)
        rules_at(6, {"control": "resume", "rule": "large"}, active=[("large", 4)])
        place.send_and_abort([payment(6, 6 * MINUTE, 200)])
        event_at(7, 61)
        rules_at(8, of_all, same, active=[("of-all", 1), ("same-amount", 1)])
        event_at(9, 62)
        event_at(10, 10)
        event_at(11, 10)
        rules_at(12, {"control": "retire", "rule": "large"}, accepted=[("large", 5)])
        event_at(13, 500)
        assert job.stop() == 0
        place.send([payment(15, 15 * MINUTE, 10)])
        job.start()
        until(job, place.consumed, "the event sent while it was stopped")
        rules_at(16, {"control": "retire", "rule": "same-amount"}, accepted=[("same-amount", 2)])
        # of several customers: a stream's clock starts once each partition has a record
        place.send(
            (NOON + 28 * MINUTE, payment(28, 28 * MINUTE, 10)[1] | {"transaction_id": name, "customer_id": name})
            for name in "abcd"
        )
        unused = {ShuffleKey("transactions", "amount")}
        until(job, lambda: dropped(place) == unused, "an unused shuffle key to be dropped")
        rules_at(29, same, active=[("same-amount", 3)])
        assert dropped(place) == set()
        event_at(30, 10)
        assert job.stop() == 0

    reported = [(a["event_id"], a["rule_id"], a["rule_version"], a["revision"], a["measures"]) for a in place.alerts()]
    assert sorted(reported, key=str) == sorted(
        [
            ("e1", "large", 1, 1, {}),
            ("e3", "large", 2, 1, {}),
            ("e7", "large", 4, 1, {}),
            ("e9", "large", 4, 1, {}),
            ("e10", "of-all", 1, 1, {"payments": 6}),
            ("e11", "same-amount", 1, 1, {"payments": 2}),
            ("e15", "same-amount", 1, 1, {"payments": 3}),
            ("e30", "same-amount", 3, 1, {"payments": 8}),
        ],
        key=str,
    )
    assert sum(status["status"] == "ACTIVE" for status in place.read(place.topics.settings.rule_status_topic)) == 6

    refused = run("stream", code=2, environment=place.environment(buckets=3), folder=place.folder).stderr
    assert "made with buckets = 4" in refused
    assert "Set buckets = 4, or `nightjar stream rebuild --buckets 3`" in refused
    environment = place.environment()
    file = Path(environment["NIGHTJAR_STREAMS"])
    file.write_text(file.read_text().replace('"decimal(12,2)"', '"decimal(12,3)"'))
    refused = run("stream", code=2, environment=environment, folder=place.folder).stderr
    assert "streams.transactions.fields.amount was decimal(12,2) and is decimal(12,3)" in refused
    (Checkpoint(job_config(place.topics.settings, place.topics.streams)).query.parent / "nightjar.json").unlink()
    refused = run("stream", code=2, environment=place.environment(), folder=place.folder).stderr
    assert "nightjar.json is missing" in refused
    assert "A new folder as checkpoint_dir" in refused
