"""Reads the published rules from their topic for the pages, and sends rule messages there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from nightjar.configuration.settings import Settings
from nightjar.kafka import rule_topics
from nightjar.operations.rule_publishing import Message, approving, declining, judged, publishing
from nightjar.pages.readings import Reading
from nightjar.rules.errors import NightjarError
from nightjar.rules.model import Rule
from nightjar.rules.rulebook import RuleBook
from nightjar.rules.streams import Stream
from nightjar.rules.versions import latest

# The rules, and the versions that the job has yet to answer; see `rule_topics.expected_book`.
Book = tuple[RuleBook, set[tuple[str, int]]]


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
        self._reading, self._send = Reading(published), send

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
        return self._reading.now(fresh=fresh)

    def book_or(self, archived: Callable[[], RuleBook], *, fresh: bool = False) -> tuple[Book, bool]:
        """The rules, and whether they are those of the topics: where Kafka cannot be read they are the archived.

        fresh: as `book` has it.
        """
        return self._reading.now_or(lambda: (archived(), set()), fresh=fresh)

    def publish(self, rule: Rule, who: str, reason: str, seen: int) -> int | None:
        """Publish a rule; the version that this makes. seen: the newest version that the author knows, 0 for none.

        None: nothing was sent, since another version is the newest by now.

        Raises:
            NightjarError: the newest version is like it, or the job would reject it.
            KafkaError: Kafka cannot be reached.
        """
        book, _ = self.book(fresh=True)
        if newest_version(book, rule.id) != seen:
            return None
        message = publishing(book, rule, who, reason)
        prepared = None if message is None else judged(self.settings, book, message, f"publish {rule.id}")
        if prepared is None:
            last = latest(book.of_rule(rule.id))
            like = seen if last is None else last.version
            raise NightjarError(f"it is as version {like} has it", where=f"publish {rule.id}", remedy="Change it first")
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

    def decline(self, rule_id: str, version: int, who: str, reason: str) -> None:
        """Decline a version that waits.

        Raises:
            NightjarError: see `declining`.
            KafkaError: Kafka cannot be reached.
        """
        book, _ = self.book(fresh=True)
        self._sent(declining(self.settings, book, rule_id, version, author=who, reason=reason).message)

    def _sent(self, message: Message) -> None:
        self._send([message])
        self._reading.drop()


def newest_version(book: RuleBook, rule_id: str) -> int:
    """The number of a rule's newest version, 0 if it was never published."""
    versions = book.of_rule(rule_id)
    return versions[-1].version if versions else 0
