"""Reads the published rules from their topic for the pages, and sends rule messages there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from nightjar.configuration.settings import Settings
from nightjar.kafka import rule_topics
from nightjar.kafka.clients import KafkaError
from nightjar.operations.rule_publishing import Message
from nightjar.rules.rulebook import RuleBook
from nightjar.rules.streams import Stream

# The rules, and the versions that the job has yet to answer; see `rule_topics.expected_book`.
Book = tuple[RuleBook, set[tuple[str, int]]]

# Everybody who looks within so many seconds sees the same reading of the topic.
_FRESH = 5.0
# Seconds after a failure in which pages that do without Kafka do not ask it again.
_PATIENCE = 30.0


class RuleReader:
    """The rules of an installation, for all readers of a process at once.

    published: those on the topics now; send: puts messages there.
    """

    def __init__(
        self,
        settings: Settings,
        streams: Mapping[str, Stream],
        published: Callable[[], Book],
        send: Callable[[Sequence[Message]], object],
    ) -> None:
        self.settings, self.streams = settings, streams
        self._published, self._send = published, send
        self._lock = threading.Lock()
        self._read: tuple[float, Book] | None = None
        self._failed: float | None = None

    @classmethod
    def on_kafka(cls, settings: Settings, streams: Mapping[str, Stream]) -> RuleReader:
        """Those on the topics of an installation."""
        return cls(
            settings,
            streams,
            lambda: rule_topics.expected_book(settings, streams),
            lambda messages: rule_topics.send(settings, messages),
        )

    def book(self, *, fresh: bool = False) -> Book:
        """The rules, at most some seconds old. fresh: as they are now.

        Raises:
            KafkaError: a topic cannot be read.
        """
        with self._lock:
            if fresh or self._read is None or time.monotonic() - self._read[0] > _FRESH:
                try:
                    found = self._published()
                except KafkaError:
                    self._failed = time.monotonic()
                    raise
                self._failed, self._read = None, (time.monotonic(), found)
            return self._read[1]

    def book_or(self, archived: Callable[[], RuleBook]) -> tuple[Book, bool]:
        """The rules, and whether they are those of the topics: where Kafka cannot be read they are the archived."""
        if self._failed is None or time.monotonic() - self._failed > _PATIENCE:
            try:
                return self.book(), True
            except KafkaError:
                pass
        return (archived(), set()), False

    def send(self, messages: Sequence[Message]) -> None:
        """Send rule messages, in order.

        Raises:
            KafkaError: Kafka does not take them.
        """
        self._send(messages)
        with self._lock:
            self._read = None
