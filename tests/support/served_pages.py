"""The pages over a lake, served without Kafka: what a test sends is in lists."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
from fastapi import Depends

from nightjar.configuration.backfill import backfill_config
from nightjar.configuration.settings import load_settings
from nightjar.contracts.record_type import Row
from nightjar.contracts.rule_status import fold
from nightjar.contracts.snoozes import SNOOZE, Snoozes
from nightjar.contracts.snoozes import message as encoded
from nightjar.operations.rule_publishing import Message
from nightjar.operations.tables import now
from nightjar.pages.acting import Acting
from nightjar.pages.application import application
from nightjar.pages.backtests import LocalBacktests
from nightjar.pages.lake_reader import LakeReader
from nightjar.pages.live import LiveAlerts
from nightjar.pages.readiness import Readiness
from nightjar.pages.rule_reader import Book, RuleReader
from nightjar.pages.serving import LocalAccess
from nightjar.pages.snoozes import SnoozeReader
from nightjar.pages.stream_page import StreamReader
from nightjar.pages.table_reader import TableReader
from nightjar.rules.rulebook import Record, RuleBook
from nightjar.rules.streams import Stream, load_streams
from nightjar.streaming.driver.answering import answer_to
from tests.support.browser import served
from tests.support.explained_lake import Ground


@dataclass
class TablesTopic:
    """Changes of tables, in the place of their topic."""

    records: list[Record] = field(default_factory=list)

    def since(self, offset: int) -> list[Record]:
        """Those from an offset on."""
        return self.records[offset:]

    def append(self, messages: Iterable[tuple[bytes, bytes]]) -> None:
        """Arrive now."""
        self.records += [Record(at, now(), value) for at, (_, value) in enumerate(messages, len(self.records))]


@dataclass
class RulesTopic:
    """Rule messages that the job answers at once, in the place of their topics. approvals: the setting."""

    streams: Mapping[str, Stream]
    answers: list[Record]
    approvals: int = 0
    sent: list[Message] = field(default_factory=list)

    def published(self) -> Book:
        """The rules by all answers."""
        book = RuleBook(self.streams)
        for answer in self.answers:
            fold(book, answer)
        return book, set()

    def send(self, messages: Iterable[Message]) -> None:
        """Arrive, and are answered, now."""
        for message in messages:
            self.sent.append(message)
            at, (book, _) = len(self.answers), self.published()
            record = Record(at, now(), json.dumps(message).encode())
            keys = list(book.shuffle_keys)
            _, answer = answer_to(record, f"rules-0-{at}", book, keys, 0, approvals=self.approvals)
            self.answers.append(Record(at, record.arrival, json.dumps(answer).encode()))


@dataclass
class SnoozesTopic:
    """Records of snoozes, in the place of their topic."""

    records: list[Row] = field(default_factory=list)

    def known(self) -> Snoozes:
        """What they say, as it is read."""
        return Snoozes(row for row in (SNOOZE.row(encoded(record)[1]) for record in self.records) if row is not None)

    def send(self, records: Iterable[Row]) -> None:
        """Arrive now."""
        self.records += records


@dataclass
class Pages:
    """The pages over a lake, served on a port."""

    ground: Ground
    access: LocalAccess
    address: str
    sent: list[Row]
    """Labels that were sent."""
    topic: TablesTopic
    rules: RulesTopic
    snoozes: SnoozesTopic
    readiness: Readiness

    def stranger(self) -> httpx.Client:
        """Who has no token."""
        return httpx.Client(base_url=self.address, trust_env=False, timeout=240)

    def get(self, path: str, code: int = 200) -> str:
        """What a reader gets."""
        with self.stranger() as client:
            client.get(f"/?token={self.access.token}")
            answer = client.get(path)
        assert answer.status_code == code, answer.text
        return answer.text


@contextmanager
def serving(
    ground: Ground,
    streams: Mapping[str, Stream] | None = None,
    acting: Acting | None = None,
    topic: TablesTopic | None = None,
    approvals: int = 0,
) -> Iterator[Pages]:
    """The pages over the lake, without Kafka. acting: the user of every request; None: whoever runs the command.

    approvals: the setting.
    """
    settings = load_settings(
        lake_dir=str(ground.root),
        data_dir=ground.root / "data",
        bootstrap_servers="127.0.0.1:9",
        approvals=approvals,
    )
    streams = streams or load_streams(settings.streams)
    backtests = LocalBacktests(settings)
    snoozed = SnoozesTopic()
    snoozes = SnoozeReader(snoozed.known, Snoozes, snoozed.send)
    config = backfill_config(settings, streams, spark=False)
    reader, access = LakeReader(config, snoozes=snoozes.known), LocalAccess()
    sent: list[Row] = []
    topic = topic or TablesTopic()
    tables = TableReader(streams, topic.since, topic.append)
    published = RulesTopic(streams, ground.answers, approvals)
    rules = RuleReader(settings, streams, published.published, published.send)
    app = application(
        lambda: reader,
        lambda: LiveAlerts(settings, streams),
        lambda: StreamReader(settings, streams),
        lambda: tables,
        lambda: rules,
        snoozes=lambda: snoozes,
        backtests=lambda: backtests,
        guard=access.guard,
        actor=access.actor if acting is None else Depends(lambda: acting),
        send=sent.append,
        links={},
    )
    access.protect(app)
    with served(app) as address:
        yield Pages(ground, access, address, sent, topic, published, snoozed, app.state.readiness)
