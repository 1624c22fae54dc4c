"""S5.7: rules that look further back than the job's state, on real Kafka, Spark and Delta."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nightjar.configuration.lake import lake_config
from nightjar.lake.archive import archive
from nightjar.rules.timestamps import iso_text
from nightjar.streaming.config import JobConfig
from nightjar.streaming.state.checkpoint import Checkpoint
from tests.support.job_host import CaseRun
from tests.support.places import MINUTE, NOON, Place, Row, final, place_of, rule, truth
from tests.support.topics import TestTopics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

DAY = 24 * 60 * MINUTE
# which nothing violates; the state has steps of the second measure before any rule is primed (S14.3)
NARROW = rule(
    "narrow",
    ["customer_id"],
    "payments >= 3 OR recent >= 9",
    payments={"count": "*", "over": "1h"},
    recent={"count": "*", "over": "1d", "resolution": "1h"},
)
# over each customer, a value that the job has no shuffle key for, and all
WIDE = [
    rule(
        f"wide-{len(by)}-{(by or ['all'])[0]}",
        by,
        "payments % 3 = 0",
        payments={"count": "*", "over": "30d"},
        spent={"sum": "amount", "over": "30d"},
    )
    for by in (["customer_id"], ["amount"], [])
] + [
    rule(
        f"steps-{by[0]}",
        by,
        "payments % 3 = 0",
        payments={"count": "*", "over": "30d", "resolution": "1h"},
        spent={"sum": "amount", "over": "30d", "resolution": "4h"},
        largest={"max": "amount", "over": "20d", "resolution": "4h"},
        recent={"count": "*", "over": "1h"},
    )
    for by in (["customer_id"], ["amount"])
]


@pytest.fixture
def place(kafka_topics: TestTopics, tmp_path: Path) -> Place:
    """Topics whose producers give the arrival, and settings for many small batches."""
    own = TestTopics(kafka_topics.settings, {"transactions": kafka_topics.streams["transactions"]})
    return place_of(own, tmp_path, warm_up_batches=0, buckets=2, max_offsets_per_trigger=100)


def payments(first: int, days: int, *, again: int = 0) -> list[tuple[int, Row]]:
    """Twenty payments a day, none late: arrival and event. The first `again` are sent twice."""
    found = []
    for number in range(20 * days):
        at = NOON + first * DAY + number * DAY // 20
        event = {
            "transaction_id": f"t{first}-{number}",
            "event_time": iso_text(at),
            "customer_id": f"c{number % 7}",
            "terminal_id": "m1",
            "amount": number * number % 11,
        }
        found += [(at, event)] * (2 if number < again else 1)
    return found


class Story:
    """A job that has read twenty-four days, of which the lake has eighteen, when wide rules are published."""

    def __init__(self, place: Place, session: "SparkSession", *, rate: int) -> None:
        self.place, self.session = place, session
        self.events = payments(0, 24, again=15)
        self.job = CaseRun(session, place.topics.settings, place.topics.streams, priming_rate=rate)

    def read(self, events: list[tuple[int, Row]]) -> None:
        """Send these, and wait until the job has read them."""
        self.place.send(events)
        self.job.wait_for(self.place.consumed, "the events to be read")

    def begin(self) -> None:
        """Up to the wide rules' messages."""
        archived = [event for event in self.events if event[0] < NOON + 18 * DAY]
        self.place.publish(NARROW, at=-MINUTE)
        self.await_active(NARROW)
        self.read(archived)
        archive(self.session, lake_config(self.place.topics.settings, self.place.topics.streams))
        self.read(self.events[len(archived) :])
        self.job.wait_for(lambda: self.horizon > NOON + 23 * DAY, "what only wider windows need to be evicted")
        self.place.publish(*WIDE, at=24 * DAY)

    @property
    def horizon(self) -> int:
        """That of the buckets of the first shuffle key."""
        try:
            return min(head.horizon for head in Checkpoint(self.job.config).committed_heads(range(2)))
        except RuntimeError:  # a batch was committed meanwhile
            return 0

    def await_active(self, *rules: Row) -> None:
        """Wait until these are in effect."""
        about = [(rule["id"], 1) for rule in rules]
        self.job.wait_for(lambda: self.place.settled(*about), f"{about} to be active")

    def end(self) -> tuple[dict[str, Row], dict[str, Row]]:
        """What was announced after eight more days, and the truth."""
        rest = payments(24, 8)
        self.read(rest)
        return final(self.place), truth(self.place, self.events + rest)


def entries(config: JobConfig, pattern: str) -> list[str]:
    """The files of exports."""
    return [file.name for file in Checkpoint(config).state.glob(f"*/{pattern}")]


def test_a_primed_rule_misses_nothing_in_its_first_window(place: Place, spark: "SparkSession") -> None:
    """S5.7: from the lake, and what it does not have yet from Kafka; over any group-by, also where it waited for a
    shuffle key. The answers say what they waited for."""
    story = Story(place, spark, rate=50_000)
    with story.job:
        story.begin()
        story.await_active(*WIDE)
        found, expected = story.end()
    assert found == expected
    assert {row["rule_id"] for row in found.values()} == {rule["id"] for rule in [NARROW, *WIDE]} - {"narrow"}
    answers = place.read(place.topics.settings.rule_status_topic)
    waited = next(a for a in answers if a["status"] == "ACCEPTED" and a["rule_id"] == "wide-1-customer_id")
    assert waited["effective"] is None
    assert "reach back 30d" in waited["reasons"][0]
    active = {a["rule_id"]: a for a in answers if a["status"] == "ACTIVE"}
    assert all("2024-02-23" <= active[rule["id"]]["history_since"] < "2024-02-25" for rule in WIDE)
    assert not entries(story.job.config, "history-*-list")


def test_without_priming_it_starts_with_what_the_state_has(place: Place, spark: "SparkSession") -> None:
    """As the setting says, and at once: then it misses some."""
    story = Story(place, spark, rate=0)
    with story.job:
        story.begin()
        story.await_active(*WIDE)
        found, expected = story.end()
    assert found != expected
    answers = place.read(place.topics.settings.rule_status_topic)
    assert not any("history_since" in answer for answer in answers)


@pytest.mark.parametrize("moment", ["exported", "answered"])
def test_a_crash_before_history_is_taken_in_loses_nothing(place: Place, spark: "SparkSession", moment: str) -> None:
    """S5.7, S9.1: before the answer the export is made again, after it the batch takes it in."""
    story = Story(place, spark, rate=50_000)

    def is_exported() -> bool:
        return bool(entries(story.job.config, "history-*-list"))

    def is_answered() -> bool:
        return any("priming" in answer for answer in place.read(place.topics.settings.rule_status_topic))

    reached: Callable[[], bool] = is_exported if moment == "exported" else is_answered
    with story.job:
        story.begin()
        story.job.wait_for(reached, moment)
        story.job.crash()
    story.job = CaseRun(spark, place.topics.settings, place.topics.streams, priming_rate=50_000)
    with story.job:
        story.await_active(*WIDE)
        found, expected = story.end()
    assert found == expected
    assert not entries(story.job.config, "history-*-list")
