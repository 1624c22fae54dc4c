"""What the running job answers about versions of rules that have ended."""

import json
import time
from typing import TYPE_CHECKING

import pytest

from nightjar.cases import Step
from nightjar.contracts.rule_status import answer_record, fold
from nightjar.rules.publishing import Answer, Status
from nightjar.rules.rulebook import Record, RuleBook
from nightjar.rules.streams import load_streams
from nightjar.streaming.driver.endings import Endings
from tests.support.answers import answered
from tests.support.job_host import CaseRun
from tests.support.topics import TestTopics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


RULE = {"id": "large", "stream": "transactions", "group_by": ["customer_id"], "when": "amount > 100"}
RETIRE = {"control": "retire", "rule": "large"}
STREAMS = load_streams()
MINUTE = 60_000_000


def step(*messages: dict[str, object], crash: bool = False) -> Step:
    """Rule messages of now, after a crash of the job."""
    return Step(time.time_ns() // 1000, crash=crash, rules=tuple(json.dumps(m).encode() for m in messages), events=())


def test_a_version_that_waits_ends_nothing() -> None:
    """One of a retired rule that waits for its shuffle key, until it has its effective time."""
    book = RuleBook(STREAMS)
    endings, topic = Endings(book), answered(STREAMS, RULE, RETIRE, RULE | {"group_by": ["amount"]})

    def take(record: Record) -> None:
        if (change := fold(book, record)) is not None and change.rule_version is not None:
            endings.take("large", change.rule_version, record.offset)

    def due(clock: int) -> list[tuple[Answer, int | None]]:
        found = endings.due({"transactions": clock}, len(topic))
        for status in found:
            topic.append(Record(len(topic), clock, json.dumps(answer_record(status)[1]).encode()))
            take(topic[-1])
        return [(status.answer, status.rule_version) for status in found]

    for record in topic:
        take(record)
    retired = book.of_rule("large")[1].effective
    assert due(retired) == [(Answer.SUPERSEDED, 1), (Answer.RETIRED, 2)]
    assert due(2 * retired) == []
    active = Status(Answer.ACTIVE, "large", 3, retired + MINUTE)
    topic.append(Record(len(topic), retired, json.dumps(answer_record(active)[1]).encode()))
    take(topic[-1])
    assert due(retired) == []
    assert due(retired + MINUTE) == [(Answer.SUPERSEDED, 2)]


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.slow
def test_a_superseded_and_a_retired_version_are_answered_by_the_clock(
    spark: "SparkSession", kafka_topics: TestTopics
) -> None:
    """S5.6: although no event comes; each once, also where the job crashes in between."""
    given = {"arrival": "broker", "partitions": 1, "buckets": 1, "warm_up_batches": 0, "activation_delay": 2_000_000}
    settings = kafka_topics.settings.model_copy(update=given)
    own = TestTopics(settings, {"transactions": kafka_topics.streams["transactions"]}).ensure()
    with CaseRun(spark, own.settings, own.streams, clock_interval=500_000, clock_margin=0) as job:

        def answered() -> list[tuple[str, int]]:
            return [(answer["status"], answer["rule_version"]) for answer in job.answers]

        job.take(step(RULE))
        job.take(step(RULE | {"when": "amount > 200"}))
        job.wait_for(lambda: ("SUPERSEDED", 1) in answered(), "version 1 to be superseded")
        job.take(step(RETIRE))
        job.take(step(crash=True))
        job.wait_for(lambda: {("SUPERSEDED", 2), ("RETIRED", 3)} <= {*answered()}, "the rule to be retired")
        job.take(step(RULE | {"id": "other"}))
        job.wait_for(lambda: ("ACTIVE", 1) in answered()[2:], "the other rule to be active")
        (of_1,) = [answer for answer in job.answers if answer["status"] == "SUPERSEDED" and answer["rule_version"] == 1]
        accepted = [answer for answer in job.answers if answer["status"] == "ACCEPTED"]
        assert (of_1["superseded_by"], of_1["superseded_from"]) == (2, accepted[1]["effective"])
        of_large = [(a["status"], a["rule_version"]) for a in job.answers if a["rule_id"] == "large"]
        assert of_large == [
            ("ACCEPTED", 1),
            ("ACTIVE", 1),
            ("ACCEPTED", 2),
            ("ACTIVE", 2),
            ("SUPERSEDED", 1),
            ("ACCEPTED", 3),
            ("SUPERSEDED", 2),
            ("RETIRED", 3),
        ]
