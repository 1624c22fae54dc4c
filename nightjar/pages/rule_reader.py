"""Reads the published rules from their topic for the pages, and sends rule messages there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from nightjar.configuration.settings import Settings
from nightjar.kafka import rule_topics
from nightjar.kafka.clients import KafkaError
from nightjar.operations.rule_publishing import Message, approving, judged, publishing
from nightjar.rules.errors import NightjarError
from nightjar.rules.model import Rule
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
            return self._current(fresh=fresh)

    def book_or(self, archived: Callable[[], RuleBook], *, fresh: bool = False) -> tuple[Book, bool]:
        """The rules, and whether they are those of the topics: where Kafka cannot be read they are the archived.

        fresh: as `book` has it.
        """
        with self._lock:
            if self._failed is None or time.monotonic() - self._failed > _PATIENCE:
                try:
                    return self._current(fresh=fresh), True
                except KafkaError:
                    pass
        return (archived(), set()), False

    def _current(self, *, fresh: bool) -> Book:
        if fresh or self._read is None or time.monotonic() - self._read[0] > _FRESH:
            try:
                found = self._published()
            except KafkaError:
                self._failed = time.monotonic()
                raise
            self._failed, self._read = None, (time.monotonic(), found)
        return self._read[1]

    def publish(self, rule: Rule, who: str, reason: str, seen: int) -> int | None:
        """Publish a rule; the version that this makes. seen: the newest version that the author knows, 0 for none.

        None: nothing was sent, since another version is the newest by now.

        Raises:
            NightjarError: the newest version is like it, or the job would reject it.
            KafkaError: Kafka cannot be reached.
        """
        book, _ = self.book(fresh=True)
        if (newest := newest_version(book, rule.id)) != seen:
            return None
        message = publishing(book, rule, who, reason)
        prepared = None if message is None else judged(self.settings, book, message, f"publish {rule.id}")
        if prepared is None:
            raise NightjarError(
                f"it is as version {newest} has it", where=f"publish {rule.id}", remedy="Change it first"
            )
        self._sent(prepared.message)
        return prepared.made.version

    def approve(self, rule_id: str, version: int, who: str, reason: str) -> None:
        """Approve a version that waits.

        Raises:
            NightjarError: see `approving`.
            KafkaError: Kafka cannot be reached.
        """
        book, _ = self.book(fresh=True)
        self._sent(approving(self.settings, book, rule_id, version, author=who, reason=reason).message)

    def _sent(self, message: Message) -> None:
        self._send([message])
        with self._lock:
            self._read = None


def newest_version(book: RuleBook, rule_id: str) -> int:
    """The number of a rule's newest version, 0 if it was never published."""
    versions = book.of_rule(rule_id)
    return versions[-1].version if versions else 0
