"""The driver's answers to rule messages, on a real broker."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, cast

import pytest
from kafka import TopicPartition

from nightjar.configuration.job import job_config
from nightjar.contracts.rule_status import fold
from nightjar.kafka.clients import admin, producer
from nightjar.kafka.readers import Reader
from nightjar.rules.rulebook import Record, RuleBook
from nightjar.rules.versions import Approval, Decline, Superseded
from nightjar.streaming import kafka_clients
from nightjar.streaming.config import JobConfig, JobError
from nightjar.streaming.driver.answering import Answering, answer_to
from nightjar.streaming.driver.clock import Arrivals
from nightjar.streaming.driver.engine_link import EngineLink
from tests.support.topics import TestTopics

pytestmark = pytest.mark.kafka

RULE: dict[str, Any] = {"id": "large", "stream": "transactions", "group_by": ["customer_id"], "when": "amount > 100"}
SECOND = 1_000_000


@pytest.fixture
def own(kafka_topics: TestTopics) -> TestTopics:
    """The test's topics, made."""
    return kafka_topics.ensure()


@contextmanager
def driver(config: JobConfig, events_per_day: float = 0.0) -> Iterator[Answering]:
    """What answers, as a start of the job makes it."""
    with ExitStack() as cleanup:
        consumers = [cleanup.enter_context(kafka_clients.consumer(config)) for _ in range(2)]
        client = cleanup.enter_context(kafka_clients.producer(config))
        answering = Answering(config, consumers, client, lambda: 7 * SECOND, lambda _: events_per_day)
        answering.catch_up()
        yield answering


def publish(own: TestTopics, *messages: dict[str, Any]) -> None:
    """Put rule messages on the topic."""
    with producer(own.settings) as client:
        for message in messages:
            client.send(own.settings.rules_topic, json.dumps(message).encode()).get()


def statuses(own: TestTopics) -> list[tuple[str, int | None, str | None]]:
    """Status, version and effective time of each answer."""
    with Reader(own.settings, own.settings.rule_status_topic) as reader:
        answers = [json.loads(record.value) for record in reader.all()]
    return [(answer["status"], answer["rule_version"], answer["effective"]) for answer in answers]


def test_an_answer_outlives_restarts_declarations_and_settings(own: TestTopics) -> None:
    """Neither another activation delay nor a stream declared later changes what was answered; each message has one."""
    config = job_config(own.settings, own.streams)
    without = replace(config, streams={"logins": own.streams["logins"]}, activation_delay=SECOND)
    publish(own, RULE)
    with driver(without) as first:
        assert first.book.ruleset.versions == ()
    publish(own, RULE)
    with driver(config) as second:
        versions = second.book.ruleset.versions
    assert [(v.version, v.rule.id) for v in versions] == [(1, "large")]
    with driver(replace(config, activation_delay=60 * SECOND)) as third:
        assert third.book.ruleset.versions == versions
    assert [status for status, _, _ in statuses(own)] == ["REJECTED", "ACCEPTED"]


def test_a_version_is_active_once_the_query_has_taken_it_in(own: TestTopics) -> None:
    """Not before; one without a shuffle key once there is one, from the brokers' present on; a paused one never."""
    config = job_config(own.settings, own.streams)
    publish(own, RULE, {**RULE, "id": "same", "group_by": ["amount"]}, {"control": "pause", "rule": "large"})
    with driver(config) as answering:
        answering.activate(0)
        assert [status for status, _, _ in statuses(own)] == ["ACCEPTED"] * 3
        answering.activate(answering.end)
        assert statuses(own)[3:] == [("ACTIVE", 1, statuses(own)[0][2])]
        answering.run_with(answering.book.shuffle_keys)
        answering.activate(answering.end)
        effective = "1970-01-01T00:00:12.000000Z"
        assert statuses(own)[4:] == [("ACTIVE", 1, effective)]
        assert not answering.owes
    with driver(config) as again:
        assert again.book.ruleset == answering.book.ruleset
        again.run_with(again.book.shuffle_keys)
        again.activate(again.end)
    assert len(statuses(own)) == 5


def test_versions_that_end_are_answered_once(own: TestTopics) -> None:
    """S5.6: when their stream's clock is there and the query has the newer version; not again after a restart."""
    config = job_config(own.settings, own.streams)
    in_2100 = "2100-01-01T00:00:00Z"
    publish(own, RULE, {**RULE, "when": "amount > 200"}, {"control": "retire", "rule": "large", "effective": in_2100})
    due = 4_102_444_800 * SECOND
    with driver(config) as answering:
        answering.activate(answering.end)
        first = answering.end
        answering.conclude({"logins": due}, first)
        answering.conclude({"transactions": due - 1}, 1)
        answering.conclude({}, first)
        assert len(statuses(own)) == first == 5
        answering.conclude({"transactions": due - 1}, first)
        answering.conclude({"transactions": due - 1}, first)
        times = [effective for _, _, effective in statuses(own)[:3]]
        assert statuses(own)[5:] == [("SUPERSEDED", 1, times[0])]
    with driver(config) as again:
        assert again.book.superseded == answering.book.superseded
        again.conclude({"transactions": due}, again.end)
        assert statuses(own)[6:] == [("SUPERSEDED", 2, times[1]), ("RETIRED", 3, times[2])]
        again.conclude({"transactions": due}, again.end)
    publish(own, RULE)
    with driver(config) as third:
        third.conclude({"transactions": due}, third.end)
        assert statuses(own)[8:] == [("ACCEPTED", 4, statuses(own)[8][2]), ("SUPERSEDED", 3, times[2])]
        assert third.book.superseded["large", 3].by == 4
        assert third.book.superseded["large", 2].by == 3
        assert (third.book.retired, third.book.skipped) == ({("large", 3)}, 0)


def test_a_version_that_never_applies_is_superseded_and_never_retired(own: TestTopics) -> None:
    """S5.6: its effective time is after that of a later version."""
    config = job_config(own.settings, own.streams)
    publish(own, RULE, {"control": "retire", "rule": "large", "effective": "2100-01-01T00:00:00Z"}, RULE)
    with driver(config) as answering:
        answering.conclude({"transactions": 9_999_999_999 * SECOND}, answering.end)
    assert [status[:2] for status in statuses(own)[3:]] == [("SUPERSEDED", 1), ("SUPERSEDED", 2)]
    with Reader(own.settings, own.settings.rule_status_topic) as reader:
        last = [json.loads(record.value) for record in reader.all()][-2:]
    assert [each["superseded_by"] for each in last] == [3, 3]


def test_a_rule_that_would_retain_too_much_is_rejected_with_the_figures(own: TestTopics) -> None:
    """By what arrives a day and its widest window; one that looks for nothing retains nothing more."""
    config = replace(job_config(own.settings, own.streams), max_retained_events=9_999)
    wide = {**RULE, "measures": {"n": {"count": "*", "over": "10d"}}}
    publish(own, wide, {**wide, "state": "paused"}, {**wide, "measures": {"n": {"count": "*", "over": "9d"}}})
    with driver(config, 1000.0):
        pass
    assert [status for status, _, _ in statuses(own)] == ["REJECTED", "ACCEPTED", "ACCEPTED"]
    with Reader(own.settings, own.settings.rule_status_topic) as reader:
        reasons = json.loads(next(iter(reader.all())).value)["reasons"]
    assert "would retain about 10,000 events (1,000 events a day on transactions x 10d)" in reasons[0]


def test_the_rate_of_a_stream_is_what_kafka_holds_of_it(own: TestTopics) -> None:
    """Of less than a day it is all that is there, so that a quick start is not taken for a day's pace."""
    config = job_config(own.settings, own.streams)
    with producer(own.settings) as client:
        for _ in range(30):
            client.send(own.streams["transactions"].topic, b"{}")
        client.flush()
    with kafka_clients.consumer(config) as consumer:
        arrivals = Arrivals(config, consumer)
        assert (arrivals.events_per_day("transactions"), arrivals.events_per_day("logins")) == (30.0, 0.0)


def test_many_messages_are_answered_as_if_one_by_one(own: TestTopics) -> None:
    """Whatever depends on an answer before it waits for that: versions, controls, and the shuffle keys of group-bys."""
    config = job_config(own.settings, own.streams)
    messages: list[dict[str, Any]] = [{**RULE, "id": f"r{n % 40}", "when": f"amount > {n}"} for n in range(100)]
    messages[20:20] = [{"control": "pause", "rule": "r3"}, {"control": "resume", "rule": "r3"}]
    messages[50:50] = [
        {**RULE, "id": "a", "group_by": ["amount"]},
        {**RULE, "id": "b", "group_by": ["event_time", "amount"]},
    ]
    messages[70:70] = [
        {**RULE, "id": "large", "description": "x" * 4000, "measures": {"m" * 200_000: {}}},
        {"id": None},
    ]
    publish(own, *messages)
    with driver(config) as answering, Reader(own.settings, own.settings.rule_status_topic) as reader:
        answers = [json.loads(record.value) for record in reader.all()]
        topic_name = own.settings.rules_topic
        assert [each["message"] for each in answers] == [f"{topic_name}-0-{n}" for n in range(len(messages))]
        with Reader(own.settings, own.settings.rules_topic) as topic:
            sent = [Record(record.offset, record.arrival, record.value) for record in topic.all()]
        book, running = RuleBook(own.streams), RuleBook(own.streams).shuffle_keys
        for message, answer in zip(sent, answers, strict=True):
            about = f"{own.settings.rules_topic}-0-{message.offset}"
            assert answer == answer_to(message, about, book, running, config.activation_delay)[1]
            fold(book, Record(message.offset, 0, json.dumps(answer).encode()))
        assert answering.book.ruleset == book.ruleset
        assert answering.book.serving == book.serving


def poll_until(answering: Answering, versions: int, until: float) -> None:
    """Poll until there are so many versions, or until then (time.monotonic)."""
    while len(answering.book.ruleset.versions) < versions and time.monotonic() < until:
        answering.poll()


@pytest.mark.parametrize("approvals", [0, 1])
@pytest.mark.parametrize(
    "naming",
    [
        {"id": "trust", "stream": "transactions", "group_by": ["customer_id"], "when": "TRUE", "allows": ["large"]},
        {
            "id": "points",
            "stream": "transactions",
            "group_by": ["customer_id"],
            "measures": {"points": {"count": "*", "over": "1h", "over_alerts": ["large"]}},
            "when": "points > 1",
        },
    ],
    ids=["allows", "over_alerts"],
)
def test_rules_that_name_each_other_are_judged_one_after_the_other(
    own: TestTopics, naming: dict[str, Any], approvals: int
) -> None:
    """However many wait: the rule that is named may no longer group by something else, proposed or not."""
    config = replace(job_config(own.settings, own.streams), approvals=approvals)
    messages = [RULE, naming, {**RULE, "group_by": ["terminal_id"]}, {**RULE, "id": "other"}]
    publish(own, *({**message, "author": "ann", "reason": "tried"} for message in messages))
    with driver(config):
        pass
    accepted = "PROPOSED" if approvals else "ACCEPTED"
    assert [status for status, _, _ in statuses(own)] == [accepted, accepted, "REJECTED", accepted]


def test_messages_are_answered_although_the_engine_process_has_ended(own: TestTopics) -> None:
    """Which is to hold while answers are published; the driver goes on with another one."""

    class Ended:
        def hold(self) -> None:
            raise JobError("the engine process has ended", where="process 1", remedy="")

    with driver(job_config(own.settings, own.streams)) as answering:
        answering.run_with(RuleBook(own.streams).shuffle_keys)
        publish(own, RULE, RULE | {"id": "other"})
        answering.engine = cast("EngineLink", Ended())
        until = time.monotonic() + 60
        with pytest.raises(JobError, match="has ended"):
            poll_until(answering, 2, until)
        answering.engine = None
        poll_until(answering, 2, until)
        assert {version.rule.id for version in answering.book.ruleset.versions} == {"large", "other"}


def test_approvals_are_answered_once_and_for_good(own: TestTopics) -> None:
    """A proposal waits through restarts; its approval counts whatever the setting is then; ACTIVE follows."""
    config = replace(job_config(own.settings, own.streams), approvals=1)
    named = {**RULE, "author": "ann", "reason": "trial"}
    publish(own, named, {**named, "id": "other"}, {**named, "when": "amount > 200"})
    with driver(config) as first:
        first.activate(first.end)
        assert (first.book.ruleset.versions, first.owes) == ((), False)
    approval = {"control": "approve", "rule": "large", "version": 2, "author": "bob", "reason": "looks right"}
    publish(own, approval, approval)
    with driver(replace(config, approvals=0)) as second:
        second.activate(second.end)
        versions = second.book.ruleset.versions
    found = [status for status, _, _ in statuses(own)]
    assert found == ["PROPOSED"] * 3 + ["SUPERSEDED", "ACCEPTED", "REJECTED", "ACTIVE"]
    assert [(v.rule.id, v.version, v.rule.author, v.approval) for v in versions] == [
        ("large", 2, "ann", Approval("bob", "looks right"))
    ]
    assert statuses(own)[4][2] == statuses(own)[6][2] is not None
    assert second.book.superseded == {("large", 1): Superseded(2, None)}
    with driver(config) as third:
        assert (third.book.ruleset.versions, third.book.every) == (versions, second.book.every)
    assert len(statuses(own)) == 7


def test_a_decline_is_answered_once_and_for_good(own: TestTopics) -> None:
    """It counts after a restart and whatever the setting is then; what is proposed next overtakes nothing."""
    config = replace(job_config(own.settings, own.streams), approvals=1)
    publish(own, {**RULE, "author": "ann", "reason": "trial"})
    decline = {"control": "decline", "rule": "large", "version": 1, "author": "bob", "reason": "too many"}
    with driver(config):
        pass
    publish(own, decline, decline, {**decline, "control": "approve"})
    with driver(replace(config, approvals=0)) as second:
        second.activate(second.end)
        assert (second.book.ruleset.versions, second.owes) == ((), False)
    publish(own, {**RULE, "author": "ann", "reason": "once more"})
    for _ in range(2):
        with driver(config) as third:
            assert [(v.version, v.decline) for v in third.book.every] == [(1, Decline("bob", "too many")), (2, None)]
    assert [answer[:2] for answer in statuses(own)] == [
        ("PROPOSED", 1),
        ("DECLINED", 1),
        ("REJECTED", None),
        ("REJECTED", None),
        ("PROPOSED", 2),
    ]


def test_a_proposal_whose_answer_a_crash_has_left_out_is_answered(own: TestTopics) -> None:
    """S5.5: once, and also where the version that overtook it needed no approval."""
    config = job_config(own.settings, own.streams)
    publish(own, {**RULE, "author": "ann", "reason": "trial"})
    with driver(replace(config, approvals=1)) as first:
        message = Record(1, 0, json.dumps(RULE | {"when": "amount > 200"}).encode())
        _, accepted = answer_to(message, f"{own.settings.rules_topic}-0-1", first.book, first.book.shuffle_keys, 0)
    publish(own, json.loads(message.value))
    with producer(own.settings) as client:
        client.send(own.settings.rule_status_topic, json.dumps(accepted).encode()).get()
    for _ in range(2):
        with driver(config) as again:
            assert (again.book.skipped, again.book.superseded) == (0, {("large", 1): Superseded(2, None)})
    answers = statuses(own)
    assert [answer[:2] for answer in answers] == [("PROPOSED", 1), ("ACCEPTED", 2), ("SUPERSEDED", 1)]


def test_lost_answers_refuse_a_start(own: TestTopics) -> None:
    """They hold the rules: without them versions would be numbered from 1 again."""
    config = job_config(own.settings, own.streams)
    publish(own, RULE, {**RULE, "when": "amount > 200"})
    with driver(config):
        pass
    with admin(own.settings) as client:
        client.delete_records({TopicPartition(own.settings.rule_status_topic, 0): 1})
    with pytest.raises(JobError, match="its records before offset 1 are missing"), driver(config):
        pass


def test_answers_of_another_rules_topic_refuse_a_start(own: TestTopics) -> None:
    """A rules topic that was removed and made again would have its first messages taken for answered."""
    config = job_config(own.settings, own.streams)
    publish(own, RULE)
    with driver(config):
        pass
    other = replace(config, topics=replace(config.topics, rules=own.settings.late_events_topic))
    with pytest.raises(JobError, match="it ends at offset 0, and answers reach to offset 0"), driver(other):
        pass
