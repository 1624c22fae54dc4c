"""The driver's own reading of the rules topic: which rules live, and which of them wait for a route."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka import TopicPartition

from streaming.config import JobConfig, JobError
from streaming.rulebook import RuleBook, RuleMessage

if TYPE_CHECKING:
    from kafka import KafkaConsumer

_POLL_MS = 200

# A message that the brokers have said to be there is read within this time (seconds), or something is wrong.
_PATIENCE = 30.0


class RuleWatch:
    """Follows the rules topic from its beginning; `book` is what all of it so far leads to."""

    def __init__(self, config: JobConfig, consumer: KafkaConsumer) -> None:
        self._topic = config.topics.rules
        self._consumer = consumer
        self._partition = TopicPartition(self._topic, 0)
        consumer.assign([self._partition])
        consumer.seek_to_beginning(self._partition)
        self._messages: list[RuleMessage] = []
        self.book = RuleBook(config.streams, config.activation_delay)

    def poll(self) -> None:
        """Read what is there."""
        self._read(0)

    def catch_up(self) -> None:
        """Read on until every message that is there now is known. Raises JobError where they cannot be read."""
        end = self._consumer.end_offsets([self._partition])[self._partition]
        waited = 0.0
        while self._consumer.position(self._partition) < end:
            waited = 0.0 if self._read(_POLL_MS) else waited + _POLL_MS / 1000
            if waited > _PATIENCE:
                raise JobError(
                    f"offset {end - 1} has been there, and does not come",
                    where=f"topic {self._topic}",
                    remedy="The topic must keep its messages forever: see its retention, and the broker's log",
                )

    def before(self, end: int) -> tuple[RuleMessage, ...]:
        """The messages before that offset."""
        return tuple(message for message in self._messages if message.offset < end)

    def _read(self, timeout_ms: int) -> bool:
        found = [record for records in self._consumer.poll(timeout_ms=timeout_ms).values() for record in records]
        for record in found:
            message = RuleMessage(record.offset, record.timestamp * 1000, record.value or b"")
            self._messages.append(message)
            self.book.receive(message)
        return bool(found)
