"""Purpose: answer each message of the `rules` topic once; an answer is final.

How it works: one driver reads `rules` and `rule-status` from their beginnings. What `rule-status` holds is folded into
`book`; the messages behind the last one that has an answer are judged in their order, and each answer is read back from
the topic before the next message is looked at. So an answer follows from the message, from the answers before it, and
from the declarations and settings at that time, and nothing changes it later.

What it does not do: evaluate rules, or add shuffle keys; it reports which are needed.

Known limitation: a message that `rules` has deleted before a job answered it is lost, and logged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog
from kafka import TopicPartition
from kafka.errors import KafkaError

from nightjar.contracts import rule_status
from nightjar.contracts.json_text import ascii_json
from nightjar.contracts.rule_status import answer_record, fold
from nightjar.ingestion.offsets import beginning_offsets, end_offsets
from nightjar.rules.errors import Problem
from nightjar.rules.foreign import DEFAULT_FORMS, Forms
from nightjar.rules.publishing import Answer, Status, judge, overtaken_status
from nightjar.rules.retention import too_much
from nightjar.rules.rulebook import Record, RuleBook, ShuffleKey
from nightjar.rules.timestamps import after, microseconds
from nightjar.rules.versions import NOT_YET, RuleVersion, naming, overtaken
from nightjar.streaming.config import JobConfig, JobError
from nightjar.streaming.driver.endings import Endings
from nightjar.streaming.driver.engine_link import EngineLink
from nightjar.streaming.priming.history import AS_IT_IS, History

if TYPE_CHECKING:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.producer.future import FutureRecordMetadata

_log = structlog.get_logger(__name__)

_POLL_MS = 200

# Rules are published by the hundred, and each is to be answered before it takes effect.
_AT_ONCE = 200
# Bytes of a message whose answer is waited for by itself: a broker may refuse it.
_LARGE = 100_000
# Bytes of a record that Kafka takes by default, less its overhead.
_MOST_BYTES = 1_000_000

# A record that the brokers have acknowledged is read within this time (seconds), or something is wrong.
_PATIENCE = 30.0


def answer_to(
    message: Record,
    about: str,
    book: RuleBook,
    shuffle_keys: Collection[ShuffleKey],
    activation_delay: int,
    *,
    forms: Forms = DEFAULT_FORMS,
    approvals: int = 0,
    too_much: Callable[[RuleVersion], Problem | None] = lambda _: None,
    history: History = AS_IT_IS,
) -> tuple[str, dict[str, Any]]:
    """(key, value) of the answer to the next message of `rules`.

    about: names the message (`topic-partition-offset`). shuffle_keys: those that the query has; a rule that needs
    another one is accepted without an effective time. activation_delay: µs. forms: what messages in other forms leave
    open. approvals: that a version needs before it takes effect. too_much: the problem of a rule that retains too much.
    history: a version that lacks some is accepted without an effective time.
    """
    made, status = judge(
        book, message.value, message.arrival, book.streams, activation_delay, forms=forms, approvals=approvals
    )
    if made is None:
        waits = status.effective == NOT_YET  # it repeats a version that waits
        return answer_record(replace(status, effective=None) if waits else status, about)
    if made.decline is not None:
        return answer_record(status, about)
    if made.rule.state.is_evaluated and (problem := too_much(made)) is not None:
        return answer_record(Status(Answer.REJECTED, made.rule.id, reasons=(str(problem),)), about)
    if made.is_proposed:
        return answer_record(status, about, made.rule)
    key, wait = book.shuffle_key_of(made.rule), None
    if key not in shuffle_keys and made.rule.state.is_evaluated:
        wait = f"no shuffle key serves group_by {list(made.rule.group_by)} yet: it takes effect once one does"
    elif made.rule.state.is_evaluated:
        wait = history.lacking(made, key, naming(made, book.ruleset))
    if wait is not None:
        status = replace(status, effective=None, reasons=(*status.reasons, wait))
    return answer_record(status, about, made.rule, key, _lateness(book, made))


def _lateness(book: RuleBook, version: RuleVersion) -> int:
    return book.streams[version.rule.stream].allowed_lateness


def _names_others(rule: Mapping[str, Any]) -> bool:
    """Whether the answers about a rule, as it is written, and about others depend on each other (S23.1, S24.1)."""
    measures = rule.get("measures", {}).values()
    return "allows" in rule or any("over_alerts" in measure for measure in measures if isinstance(measure, Mapping))


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
        found: int = beginning_offsets(self._consumer, [self._partition])[self._partition]
        return found

    @property
    def end(self) -> int:
        """The offset after the last record."""
        found: int = end_offsets(self._consumer, [self._partition])[self._partition]
        return found

    def poll(self, timeout_ms: int = 0) -> list[Record]:
        """The records that can be read now."""
        return [
            Record(found.offset, found.timestamp * 1000, found.value or b"")
            for records in self._consumer.poll(timeout_ms=timeout_ms).values()
            for found in records
        ]

    def back_to(self, offset: int) -> None:
        """Read on from this offset."""
        self._consumer.seek(self._partition, offset)

    def until(self, end: int) -> Iterable[Record]:
        """Read on up to this offset.

        Raises:
            JobError: what is there cannot be read.
        """
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

    now: the present by the brokers' clock, µs; None where it is not known yet. events_per_day: of a stream, by name.
    """

    def __init__(
        self,
        config: JobConfig,
        consumers: Iterable[KafkaConsumer],
        producer: KafkaProducer,
        now: Callable[[], int | None],
        events_per_day: Callable[[str], float] = lambda _: 0.0,
        *,
        history: History = AS_IT_IS,
    ) -> None:
        of_messages, of_answers = consumers
        self.book = RuleBook(config.streams)
        self._config = config
        self._producer = producer
        self._now = now
        self._events_per_day = events_per_day
        self._history = history
        self._exports: dict[str, int] = {}  # of history, and the offset of the answer that names each
        self._messages = _Follower(of_messages, config.topics.rules)
        self._answers = _Follower(of_answers, config.topics.rule_status)
        self._unanswered: deque[Record] = deque()
        self._changes: list[Record] = []  # the records that changed the book
        # Versions that may have to be answered ACTIVE, and the offset of the answer that made each.
        self._inactive: dict[tuple[str, int], int] = {}
        self._endings = Endings(self.book)
        # rules of which a version has been published since their proposals were seen to
        self._published: set[str] = set()
        self._shuffle_keys: frozenset[ShuffleKey] = frozenset(self.book.shuffle_keys)
        # of a real-time query, which is to know an answer before it evaluates events that arrive after it
        self.engine: EngineLink | None = None

    def catch_up(self) -> None:
        """Answer all current messages.

        Raises:
            JobError: a topic has lost what must be kept.
        """
        if self._answers.begin:
            raise JobError(
                f"its records before offset {self._answers.begin} are missing: the rules are in them",
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
                topic=self._messages.topic,
                first=self.book.next_message,
                last=begin - 1,
            )
        self._unanswered.extend(self._messages.until(end))
        self._answer()

    def poll(self) -> None:
        """Read new messages, and answer them."""
        for record in self._answers.poll():
            self._fold(record)
        self._unanswered.extend(self._messages.poll())
        self._answer()

    def read_on(self) -> None:
        """Read every answer that may have been published. Raises KafkaError if no broker answers."""
        self._producer.flush(_PATIENCE)
        for record in self._answers.until(self._answers.end):
            self._fold(record)

    def run_with(self, shuffle_keys: Iterable[ShuffleKey]) -> None:
        """The query has these shuffle keys from now on."""
        self._shuffle_keys = frozenset(shuffle_keys)

    def exports(self, consumed: int) -> list[str]:
        """The exports of history that the query has yet to take in. consumed: as in `activate`."""
        return [name for name, offset in self._exports.items() if offset >= consumed]

    def activate(self, consumed: int, stored: int | None = None) -> None:
        """Answer ACTIVE for versions that the query has taken in, and for those that waited for a shuffle key it now
        has, and for history.

        consumed: the offset of `rule-status` up to which the query has read. stored: that up to which what it read is
        in the state, where this is another.
        """
        stored = consumed if stored is None else stored
        for (rule_id, number), offset in list(self._inactive.items()):
            version = self.book.of_rule(rule_id)[number - 1]
            owed = version.rule.state.is_evaluated and (rule_id, number) not in self.book.active
            if owed and version.effective == NOT_YET:
                if not self.exports(stored):  # which may hold its history too
                    self._give_effect(version, is_known=offset < stored)
            elif owed and offset < consumed:
                published = self.book.answered[rule_id, number]
                self._send(*answer_record(Status(Answer.ACTIVE, rule_id, number, version.effective)), published)
            if not owed or (rule_id, number) in self.book.active:
                del self._inactive[rule_id, number]

    def conclude(self, clocks: Mapping[str, int], consumed: int) -> None:
        """Answer SUPERSEDED and RETIRED for versions that have ended.

        clocks: µs, by stream. consumed: as in `activate`.
        """
        due = self._endings.due(clocks, consumed)
        for begin in range(0, len(due), _AT_ONCE):
            sent = [
                self._sent(*answer_record(each), self.book.answered[str(each.rule_id), int(each.rule_version or 0)])
                for each in due[begin : begin + _AT_ONCE]
            ]
            self._fold_until([each.get(_PATIENCE).offset for each in sent])

    def before(self, end: int) -> tuple[Record, ...]:
        """The answers before that offset that made a version, or gave one its effective time."""
        return tuple(record for record in self._changes if record.offset < end)

    @property
    def end(self) -> int:
        """The offset after the last answer that `book` holds."""
        return self.book.next_offset

    @property
    def lacks_shuffle_key(self) -> bool:
        """Whether a version waits for a shuffle key that the query does not have."""
        versions = (self.book.of_rule(rule_id)[number - 1] for rule_id, number in self._inactive)
        return any(v.effective == NOT_YET and self._shuffle_key_of(v) not in self._shuffle_keys for v in versions)

    @property
    def owes(self) -> bool:
        """Whether `activate` may have something to answer."""
        return bool(self._inactive)

    def _shuffle_key_of(self, version: RuleVersion) -> ShuffleKey:
        return self.book.serving[version.rule.stream, version.rule.group_by]

    def _give_effect(self, version: RuleVersion, *, is_known: bool) -> None:
        """Answer with the effective time of a version that waited for its shuffle key, or for history. is_known:
        whether the query knows the version, and so evicts nothing that it needs.

        Where producers set arrivals there is no present time: the version takes effect from its publication.
        """
        rule = version.rule
        key = self._shuffle_key_of(version)
        if key not in self._shuffle_keys:
            return
        ready = self._history.find(version, key, naming(version, self.book.ruleset), is_known=is_known)
        if ready is None:
            return
        producers = self._config.arrival == "producer"
        now = self.book.answered[rule.id, version.version] if producers else self._now()
        if now is None:
            return
        effective = after(now, self._config.activation_delay)
        if rule.effective is not None:
            stated = microseconds(rule.effective)
            effective = max(now, stated) if ready.primed is None else stated
        active = Status(Answer.ACTIVE, rule.id, version.version, effective, primed=ready.primed)
        self._send(*answer_record(active, allowed_lateness=_lateness(self.book, version)), now)

    def _answer(self) -> None:
        """Answer waiting messages, several at once where none depends on the answer to another."""
        self._answer_overtaken()
        while self._unanswered:
            first = self._unanswered[0]
            try:
                self._fold_until([each.get(_PATIENCE).offset for each in self._some_sent()])
            except (KafkaError, JobError):
                # What was not acknowledged may be on the topic all the same: answers are read before messages again.
                self._unanswered.clear()
                self._messages.back_to(first.offset)
                raise
            self._answer_overtaken()

    def _some_sent(self) -> list[FutureRecordMetadata]:
        """Send answers to the first waiting messages, of which none depends on the answer to another."""
        about = set[str | None]()
        sent: list[FutureRecordMetadata] = []
        for message in list(self._unanswered):
            if message.offset < self.book.next_message:
                self._unanswered.popleft()
                continue
            key, value = self._answer_to(message)
            # what becomes of a version without an effective time depends on shuffle keys
            waits = value["effective"] is None and value["status"] != Answer.PROPOSED
            alone = len(message.value) > _LARGE or waits or _names_others(value.get("rule") or {})
            if sent and (alone or value["rule_id"] in about):
                break
            self._unanswered.popleft()
            sent.append(self._sent(key, value, message.arrival))
            about.add(value["rule_id"])
            if alone or len(sent) == _AT_ONCE:
                break
        return sent

    def _answer_overtaken(self) -> None:
        """Answer SUPERSEDED for proposals that a later version has overtaken."""
        for rule_id in sorted(self._published):
            for version, by in overtaken(self.book.of_rule(rule_id)):
                if (rule_id, version.version) not in self.book.superseded:
                    self._send(*answer_record(overtaken_status(version, by)), self.book.published[rule_id, by.by])
            self._published.remove(rule_id)

    def _answer_to(self, message: Record) -> tuple[str, dict[str, Any]]:
        config = self._config
        return answer_to(
            message,
            f"{config.topics.rules}-0-{message.offset}",
            self.book,
            self._shuffle_keys,
            config.activation_delay,
            forms=config.forms,
            approvals=config.approvals,
            too_much=self._too_much,
            history=self._history,
        )

    def _too_much(self, version: RuleVersion) -> Problem | None:
        return too_much(version, self._events_per_day(version.rule.stream), self._config.max_retained_events)

    def _send(self, key: str, value: dict[str, Any], arrival: int) -> None:
        """Send an answer and read on until it is read back. arrival: µs, its time stamp where producers give them."""
        self._fold_until([self._sent(key, value, arrival).get(_PATIENCE).offset])

    def _sent(self, key: str, value: dict[str, Any], arrival: int) -> FutureRecordMetadata:
        if self.engine is not None:
            self.engine.hold()
        stamp = {"timestamp_ms": arrival // 1000} if self._config.arrival == "producer" else {}
        written = rule_status.encoded(value)
        if len(written) > _MOST_BYTES:
            reason = f"its answer has {len(written):,} bytes, more than Kafka takes. Split the rule in two"
            key, refused = answer_record(Status(Answer.REJECTED, value["rule_id"], reasons=(reason,)), value["message"])
            written = ascii_json(refused)
        return self._producer.send(self._answers.topic, written, key=key.encode(), **stamp)

    def _fold_until(self, offsets: list[int]) -> None:
        """Read answers on until these have been read back."""
        for record in self._answers.until(max(offsets, default=-1) + 1):
            self._fold(record)

    def _fold(self, record: Record) -> None:
        if self.engine is not None:
            self.engine.note(record)
        answer = fold(self.book, record)
        if answer is None:
            return
        self._changes.append(record)
        if answer.answer in (Answer.PROPOSED, Answer.ACCEPTED):
            self._published.add(str(answer.rule_id))
        if answer.answer in (Answer.PROPOSED, Answer.DECLINED):
            return
        if answer.primed is not None and answer.primed.name:
            self._exports[answer.primed.name] = record.offset
        rule_id, number = str(answer.rule_id), int(answer.rule_version or 0)
        self._endings.take(rule_id, number, record.offset)
        if answer.answer is Answer.ACCEPTED:
            self._inactive[rule_id, number] = record.offset
