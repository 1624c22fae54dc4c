"""Passes one hostile text through everything that reads rules, and evaluates it on a few events if accepted."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from nightjar.contracts.headers import SENT_AT
from nightjar.contracts.rule_status import fold
from nightjar.rules.engine import Engine
from nightjar.rules.engine.store import ARRIVAL
from nightjar.rules.errors import RuleError
from nightjar.rules.event_values import MAX_STRING
from nightjar.rules.model import Rule, load_rules, parse_rule, rule_to_mapping
from nightjar.rules.publishing import Answer
from nightjar.rules.rulebook import Record, RuleBook
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP, parse_timestamp
from nightjar.rules.truth import Truth
from nightjar.rules.types import TIMESTAMP, FieldType, Kind
from nightjar.rules.versions import RuleSet
from nightjar.rules.violation_checks import recheck
from nightjar.streaming.buckets.output_records import alert_records
from nightjar.streaming.driver.answering import answer_to

# Processor time (s) that reading a text, or evaluating a rule, may take.
LONGEST = 1.0
# Limits in bytes: of an answer on rule-status; of an alert, a broker's default limit.
_LONGEST_ANSWER = 200_000
_LONGEST_ALERT = 1_000_000
_NOON = parse_timestamp("2026-01-20T12:00:00Z", zone_required=True) or 0
_SECOND = 1_000_000
_VALUES: dict[Kind, tuple[Any, ...]] = {
    Kind.STRING: (
        "a",
        "a",
        None,
        "",
        "é😀",
        "a\0b",
        "a\tb\nc",
        "x" * MAX_STRING,
        "c000001",
        "%_",
        "\x01" * MAX_STRING,
        "a",
    ),
    Kind.INT64: (0, 1, -1, None, 2**63 - 1, -(2**63), 5, 5, 10**18, -(10**18), 2**53 + 1, 7),
    Kind.DOUBLE: (0.0, -0.0, 1.5, None, 1.7e308, -1.7e308, 5e-324, 1e300, 0.1, 0.2, -1.5, 3.0),
    Kind.BOOLEAN: (True, False, None, True, True, False, False, True, None, True, False, True),
    Kind.TIMESTAMP: (
        0,
        1,
        None,
        MIN_TIMESTAMP,
        MAX_TIMESTAMP,
        -1,
        _NOON,
        _NOON,
        _NOON + 1,
        86_400_000_000,
        None,
        _NOON,
    ),
}


@dataclass
class Examined:
    """What became of a text: `verdict`, the seconds of the longest step, what is wrong with that, and what was slow."""

    verdict: str = "refused"
    longest: float = 0.0
    wrong: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """One step; what it raises is wrong; one that takes long is slow."""
        began = time.process_time()
        try:
            yield
        except Exception as failure:  # noqa: BLE001  a finding, whatever it is
            self.wrong.append(f"{name} raised {type(failure).__name__}: {failure!s:.300}")
        took = time.process_time() - began
        self.longest = max(self.longest, took)
        if took > LONGEST:
            self.slow.append(f"{name} took {took:.1f} s")


class Examiner:
    """Examines texts about the given streams; `file` is where `nightjar rules check` finds each."""

    def __init__(self, streams: Mapping[str, Stream], file: Path) -> None:
        self._streams, self._file = streams, file
        self._events = {name: events_of(stream) for name, stream in streams.items()}
        stream = next(iter(streams.values()))
        base = {"id": "base", "stream": stream.name, "group_by": [stream.entities[0]], "when": "TRUE"}
        self._base = Record(0, 0, json.dumps(base).encode())
        self.examine(self._base.value)  # so that one-time initialization is not measured

    def examine(self, text: bytes) -> Examined:
        """The text as a message of the rules topic, as a file, and, where it is a rule, on the stream's events."""
        examined = Examined()
        published = self._published(text, examined)
        read = self._read(text, examined)
        if published is not None and read is not None and published != read:
            examined.wrong.append("the message is another rule than the file")
        if published is not None and read is None:
            examined.wrong.append("the message is a rule and the file is none")
        rule = read or published
        if rule is not None:
            examined.verdict = "accepted"
            with examined.step("evaluating"):
                examined.wrong += self._evaluated(rule)
        return examined

    @staticmethod
    def _answer(book: RuleBook, message: Record) -> dict[str, Any]:
        """The answer to a message, which the book takes."""
        _, answer = answer_to(message, f"rules-0-{message.offset}", book, book.shuffle_keys, 0)
        fold(book, replace(message, value=json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace")))
        return answer

    def _published(self, text: bytes, examined: Examined) -> Rule | None:
        book = RuleBook(self._streams)
        self._answer(book, self._base)
        with examined.step("publishing"):
            answer = self._answer(book, Record(1, 1_000_000, text))
            if len(json.dumps(answer, ensure_ascii=False).encode()) > _LONGEST_ANSWER:
                examined.wrong.append("the answer is too long")
            if answer["status"] == Answer.REJECTED and not all(map(_is_understandable, answer["reasons"] or [""])):
                examined.wrong.append(f"rejected without a reason: {answer['reasons']!r:.300}")
            if book.skipped:
                examined.wrong.append("the answer cannot be read back")
            newest = book.ruleset.versions[-1].rule
            if len(book.ruleset.versions) > 1 and newest.id != "base":
                return newest
            if len(book.ruleset.versions) > 1:
                examined.verdict = "a control"
        return None

    def _read(self, text: bytes, examined: Examined) -> Rule | None:
        self._file.write_bytes(text)
        with examined.step("reading a file"):
            try:
                load_rules(self._file, self._streams)
            except RuleError as refusal:
                str(refusal).encode()
                for problem in refusal.problems:
                    if not problem.remedy or not _is_understandable(str(problem)):
                        examined.wrong.append(f"refused without a remedy: {problem!r:.300}")
        with examined.step("reading a text"):
            try:
                rule = parse_rule(text, self._streams)
            except RuleError:
                return None
            if parse_rule(rule_to_mapping(rule), self._streams) != rule:
                examined.wrong.append("the rule is another when read again")
            return rule
        return None

    def _evaluated(self, rule: Rule) -> Iterator[str]:
        """What is wrong with the rule's alerts, and with the truth of the same events."""
        stream, events = self._streams[rule.stream], self._events[rule.stream]
        ruleset = RuleSet.of([rule], MIN_TIMESTAMP)
        alerts = Engine(stream, ruleset).advance(events, _NOON).alerts
        sent_at = pa.nulls(alerts.num_rows, pa.string())
        for value in alert_records("alerts", alerts, sent_at, _NOON).column("value").to_pylist():
            json.loads(value)
            if len(value.encode()) > _LONGEST_ALERT:
                yield f"an alert of {len(value.encode())} bytes"
        found = Truth(stream, ruleset, events, clock=_NOON).violations()
        if _concluded(alerts) != _concluded(found):
            yield "stream and truth conclude otherwise"
        checked = recheck(found, events, stream, ruleset).to_pylist()
        for row, alert_id in zip(checked, found.column("alert_id").to_pylist(), strict=True):
            if row.pop("expected_id") != alert_id or not all(row.values()):
                yield f"a violation does not hold on its own words: {row}"


def events_of(stream: Stream) -> pa.Table:
    """A dozen events of one or two groups, with the values that each type has at its ends, NULLs, and equal times."""
    rows = []
    for number in range(12):
        row = {name: _value(kind, number + shift) for shift, (name, kind) in enumerate(stream.fields.items())}
        row |= dict.fromkeys(stream.entities[: number % 3], "a")
        row[stream.event_id] = f"e{number}" if number < 10 else f"e\t{number}\n"
        row[stream.event_time] = (MIN_TIMESTAMP, MAX_TIMESTAMP)[number] if number < 2 else _NOON + number // 2 * _SECOND
        rows.append({**row, ARRIVAL: row[stream.event_time], SENT_AT: _NOON})
    schema = stream.schema.append(pa.field(ARRIVAL, TIMESTAMP.arrow)).append(pa.field(SENT_AT, pa.int64()))
    return pa.Table.from_pylist(rows, schema)


def _value(kind: FieldType, number: int) -> Any:
    if kind.kind is not Kind.DECIMAL:
        return _VALUES[kind.kind][number % 12]
    most = 10**kind.precision - 1
    scaled = (0, 1, -1, None, most, -most, 5000 % most, 12345 % most, most // 2, 100 % most, 1, 7)[number % 12]
    return None if scaled is None else Decimal(scaled).scaleb(-kind.scale)


def _concluded(rows: pa.Table) -> list[tuple[str, ...]]:
    names = ("alert_id", "group", "event_id", "measures", "severity", "text")
    return sorted(zip(*(rows.column(name).to_pylist() for name in names), strict=True))


def _is_understandable(reason: str) -> bool:
    """Whether a message is readable and actionable."""
    return 10 < len(reason) < 5000 and not any(
        word in reason for word in ("Traceback", "recursion", "<class", "object at 0x")
    )
