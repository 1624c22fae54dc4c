"""Purpose: answer each message of the `rules` topic, once and for good.

How it works: one driver reads `rules` and `rule-status` from their beginnings. What `rule-status` holds is folded into
`book`; the messages behind the last one that has an answer are judged in their order, and each answer is read back from
the topic before the next message is looked at. So an answer follows from the message, from the answers before it, and
from the declarations and settings of the moment it was given, and nothing changes it later.

What it does not do: evaluate rules, or make routes; it tells which are needed.

Known limitation: a message that `rules` has deleted before a job answered it is lost, and logged.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog
from kafka import TopicPartition
from kafka.errors import MessageSizeTooLargeError

from rules.publication import Answer, Status, judge
from rules.timestamps import microseconds
from rules.versions import RuleVersion
from streaming.config import JobConfig, JobError
from streaming.rulebook import NOT_YET, Record, Route, RuleBook, answer_record

if TYPE_CHECKING:
    from kafka import KafkaConsumer, KafkaProducer

_log = structlog.get_logger(__name__)

_POLL_MS = 200

# A record that the brokers have said to be there is read within this time (seconds), or something is wrong.
_PATIENCE = 30.0


def answer_to(
    message: Record, about: str, book: RuleBook, routes: Collection[Route], activation_delay: int
) -> tuple[str, dict[str, Any]]:
    """(key, value) of the answer to the next message of `rules`.

    about: names the message (`topic-partition-offset`). routes: those that the query has; a rule that needs another one
    is accepted without an effective time. activation_delay: µs.
    """
    made, status = judge(book, message.value, message.arrival, book.streams, activation_delay)
    if made is None:
        waits = status.effective == NOT_YET  # it repeats a version that waits
        return answer_record(replace(status, effective=None) if waits else status, about)
    route = book.route_of(made.rule)
    if route not in routes and made.rule.state.is_evaluated:
        wait = f"no route serves group_by {list(made.rule.group_by)} yet: it takes effect once the job has made one"
        status = replace(status, effective=None, reasons=(wait,))
    return answer_record(status, about, made.rule, route)


class _Follower:
    """The only partition of a topic, read from its beginning."""

    def __init__(self, consumer: KafkaConsumer, topic: str) -> None:
        self.topic = topic
        self._consumer = consumer
        self._partition = TopicPartition(topic, 0)
        consumer.assign([self._partition])
        consumer.seek_to_beginning(self._partition)

    @property
    def begin(self) -> int:
        """The first offset that the topic has."""
        found: int = self._consumer.beginning_offsets([self._partition])[self._partition]
        return found

    @property
    def end(self) -> int:
        """The offset after the last record."""
        found: int = self._consumer.end_offsets([self._partition])[self._partition]
        return found

    def poll(self, timeout_ms: int = 0) -> list[Record]:
        """What there is to read now."""
        return [
            Record(found.offset, found.timestamp * 1000, found.value or b"")
            for records in self._consumer.poll(timeout_ms=timeout_ms).values()
            for found in records
        ]

    def until(self, end: int) -> Iterable[Record]:
        """Read on up to this offset. Raises JobError where what is there cannot be read."""
        waited = 0.0
        while self._consumer.position(self._partition) < end:
            found = self.poll(_POLL_MS)
            yield from found
            waited = 0.0 if found else waited + _POLL_MS / 1000
            if waited > _PATIENCE:
                raise JobError(
                    f"offset {end - 1} exists and cannot be read",
                    where=f"topic {self.topic}",
                    remedy="The topic must keep its records forever: see its retention, and the broker's log",
                )


class Answering:
    """Follows both topics and answers; `book` is what all answers so far lead to.

    now: the present by the brokers' clock, µs; None where it is not known yet.
    """

    def __init__(
        self,
        config: JobConfig,
        consumers: Iterable[KafkaConsumer],
        producer: KafkaProducer,
        now: Callable[[], int | None],
    ) -> None:
        of_messages, of_answers = consumers
        self.book = RuleBook(config.streams)
        self._config = config
        self._producer = producer
        self._now = now
        self._messages = _Follower(of_messages, config.topics.rules)
        self._answers = _Follower(of_answers, config.topics.rule_status)
        self._unanswered: deque[Record] = deque()
        self._changes: list[Record] = []  # the records that changed the book
        # Versions that may have to be answered ACTIVE, and the offset of the answer that made each.
        self._inactive: dict[tuple[str, int], int] = {}
        self._routes: frozenset[Route] = frozenset(self.book.routes)

    def catch_up(self) -> None:
        """Answer every message that is there now. Raises JobError where a topic has lost what must be kept."""
        if self._answers.begin:
            raise JobError(
                f"its records before offset {self._answers.begin} are gone: they say which rules there are",
                where=f"topic {self._answers.topic}",
                remedy="Put them back, and have the topic keep its records forever (retention.ms = -1, "
                "retention.bytes = -1, cleanup.policy = delete)",
            )
        for record in self._answers.until(self._answers.end):
            self._fold(record)
        begin, end = self._messages.begin, self._messages.end
        if end < self.book.next_message:
            raise JobError(
                f"it ends at offset {end}, and answers reach to offset {self.book.next_message - 1}",
                where=f"topic {self._messages.topic}",
                remedy=f"It is not the topic that {self._answers.topic} answers: name that one as rules_topic, or give "
                "this one a rule_status_topic of its own",
            )
        if begin > self.book.next_message:
            _log.error(
                "rule messages were deleted before they were answered",
                topic=self._messages.topic, first=self.book.next_message, last=begin - 1,
            )  # fmt: skip
        self._unanswered.extend(self._messages.until(end))
        self._answer()

    def poll(self) -> None:
        """Read what is there, and answer it."""
        for record in self._answers.poll():
            self._fold(record)
        self._unanswered.extend(self._messages.poll())
        self._answer()

    def run_with(self, routes: Iterable[Route]) -> None:
        """The query has these routes from now on."""
        self._routes = frozenset(routes)

    def activate(self, consumed: int) -> None:
        """Answer ACTIVE for versions that the query has taken in, and for those that waited for a route it now has.

        consumed: the offset of `rule-status` up to which the query has committed.
        """
        for (rule_id, number), offset in list(self._inactive.items()):
            version = self.book.of_rule(rule_id)[number - 1]
            owed = version.rule.state.is_evaluated and (rule_id, number) not in self.book.active
            if owed and version.effective == NOT_YET:
                self._give_effect(version)
            elif owed and offset < consumed:
                published = self.book.answered[rule_id, number]
                self._send(*answer_record(Status(Answer.ACTIVE, rule_id, number, version.effective)), published)
            if not owed or (rule_id, number) in self.book.active:
                del self._inactive[rule_id, number]

    def before(self, end: int) -> tuple[Record, ...]:
        """The answers before that offset that made a version, or gave one its effective time."""
        return tuple(record for record in self._changes if record.offset < end)

    @property
    def end(self) -> int:
        """The offset after the last answer that `book` holds."""
        return self.book.next_offset

    @property
    def owes(self) -> bool:
        """Whether `activate` may have something to answer."""
        return bool(self._inactive)

    def _give_effect(self, version: RuleVersion) -> None:
        """Answer from when on a version applies that waited for its route.

        Where producers give arrivals there is no present to begin in: such a version begins where it was published.
        """
        rule = version.rule
        if self.book.serving[rule.stream, rule.group_by] not in self._routes:
            return
        producers = self._config.arrival == "producer"
        now = self.book.answered[rule.id, version.version] if producers else self._now()
        if now is None:
            return
        effective = now + self._config.activation_delay
        if rule.effective is not None:
            effective = max(now, microseconds(rule.effective))
        self._send(*answer_record(Status(Answer.ACTIVE, rule.id, version.version, effective)), now)

    def _answer(self) -> None:
        while self._unanswered:
            message = self._unanswered[0]
            if message.offset >= self.book.next_message:
                self._judge(message)
            self._unanswered.popleft()

    def _judge(self, message: Record) -> None:
        config = self._config
        about = f"{config.topics.rules}-0-{message.offset}"
        self._send(*answer_to(message, about, self.book, self._routes, config.activation_delay), message.arrival)

    def _send(self, key: str, value: dict[str, Any], arrival: int) -> None:
        """Send an answer and read on until it is read back. arrival: µs, its time stamp where producers give them."""
        stamp = {"timestamp_ms": arrival // 1000} if self._config.arrival == "producer" else {}
        written = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        try:
            sent = self._producer.send(self._answers.topic, written, key=key.encode(), **stamp).get(_PATIENCE)
        except MessageSizeTooLargeError:
            reason = f"its answer has {len(written)} bytes, more than Kafka takes. Split the rule in two"
            refused = Status(Answer.REJECTED, value["rule_id"], reasons=(reason,))
            return self._send(*answer_record(refused, value["message"]), arrival)
        for record in self._answers.until(sent.offset + 1):
            self._fold(record)
        return None

    def _fold(self, record: Record) -> None:
        said = self.book.receive(record)
        if said is None:
            return
        self._changes.append(record)
        if said.answer is Answer.ACCEPTED:
            self._inactive[str(said.rule_id), int(said.rule_version or 0)] = record.offset
