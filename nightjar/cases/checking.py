"""Compares a case's outcome with its expectation: matches rows by the given keys and lists the differences."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from nightjar.cases.documents import Number, Stamp, json_text
from nightjar.cases.model import SECTIONS, CaseOutcome, ExpectedOutcome, Row
from nightjar.rules.timestamps import parse_timestamp

# Keys with text for people: it only needs to contain the expected text.
_PROSE = frozenset({"detail", "reasons"})
_ABSENT = object()


@dataclass(frozen=True)
class Mismatch:
    """A key (`measures.spent`) whose value is not as expected; `got` is also None if the key is missing."""

    path: str
    expected: Any
    got: Any


@dataclass(frozen=True)
class Difference:
    """An expected row that is missing (with the most similar actual row), or an unexpected row."""

    section: str
    expected: Row | None
    got: Row | None
    mismatches: list[Mismatch] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The difference as one JSON object."""
        return {
            "section": self.section,
            "expected": _as_json(self.expected),
            "got": self.got,
            "mismatches": [
                {"path": found.path, "expected": _as_json(found.expected), "got": found.got}
                for found in self.mismatches
            ],
        }


def described(differences: Iterable[Difference]) -> list[str]:
    """Differences as lines for people: what differs, then indented the rows and each value that is another."""
    return [line for difference in differences for line in _described(difference)]


def _described(difference: Difference) -> Iterator[str]:
    found, expected = difference.got, difference.expected
    verdict = "not as expected" if found is not None else "was expected and is missing"
    yield f"  {difference.section}: {'was not expected' if expected is None else verdict}"
    if expected is not None:
        yield f"    expected  {json_text(expected)}"
    if found is not None:
        yield f"    got       {json_text(found)}"
    for each in difference.mismatches:
        got = "nothing" if each.got is None else json_text(each.got)
        yield f"    {each.path}: expected {json_text(each.expected)}, got {got}"


def _as_json(expected: Any) -> Any:
    return json.loads(json_text(expected))


def check(expect: ExpectedOutcome, outcome: CaseOutcome) -> list[Difference]:
    """The differences in the sections that the case lists; empty if all is as expected.

    Rows are matched in any order, because Kafka does not order records of different keys; the revisions of an alert and
    `emitted_at` show the order.
    """
    found: list[Difference] = []
    for section in SECTIONS:
        if section in expect.rows:
            found += _differences(section, expect.rows[section], getattr(outcome, section))
    if expect.state is not None:
        for stream, groups in expect.state.items():
            got = outcome.state.get(stream, {})
            wrong = [Mismatch(name, n, got.get(name, 0)) for name, n in groups.items() if got.get(name, 0) != n]
            if wrong:
                found.append(Difference(f"state of {stream}", dict(groups), got, wrong))
    return found


def _differences(section: str, expected: list[Row], got: list[Row]) -> Iterator[Difference]:
    taken = _matched(expected, got)
    left = [row for at, row in enumerate(got) if at not in taken.values()]
    for at, row in enumerate(expected):
        if at in taken:
            continue
        nearest = min(left, key=lambda other: sum(1 for _ in _mismatches("", row, other)), default=None)
        if nearest is None:
            yield Difference(section, row, None)
            continue
        left = [other for other in left if other is not nearest]
        yield Difference(section, row, nearest, list(_mismatches("", row, nearest)))
    for row in left:
        yield Difference(section, None, row)


def _matched(expected: list[Row], got: list[Row]) -> dict[int, int]:
    """A maximum matching of expected rows to actual rows: index of the expected row → index of the actual row.

    Source: Kuhn's augmenting paths.
    """
    fitting = [
        [j for j, other in enumerate(got) if not any(True for _ in _mismatches("", row, other))] for row in expected
    ]
    owner: dict[int, int] = {}

    def place(row: int, tried: set[int]) -> bool:
        for candidate in fitting[row]:
            if candidate in tried:
                continue
            tried.add(candidate)
            if candidate not in owner or place(owner[candidate], tried):
                owner[candidate] = row
                return True
        return False

    for row in range(len(expected)):
        place(row, set())
    return {row: candidate for candidate, row in owner.items()}


def _mismatches(path: str, expected: Any, got: Any) -> Iterator[Mismatch]:
    if isinstance(expected, Mapping) and isinstance(got, Mapping):
        for key, value in expected.items():
            yield from _mismatches(f"{path}.{key}" if path else key, value, got.get(key, _ABSENT))
    elif path in _PROSE:
        text = " ".join(got) if isinstance(got, list) else str(got)
        parts = expected if isinstance(expected, list) else [expected]
        if not all(str(part) in text for part in parts):
            yield Mismatch(path, expected, got)
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        for at, (one, other) in enumerate(zip(expected, got, strict=True)):
            yield from _mismatches(f"{path}.{at}", one, other)
    elif not _equal(expected, got):
        yield Mismatch(path, expected, None if got is _ABSENT else got)


def _equal(expected: Any, got: Any) -> bool:
    """Compare numbers by value (12.5 equals "12.50", doubles to nine digits), and quoted text exactly."""
    if isinstance(expected, Number):
        if isinstance(got, float):
            return math.isclose(float(expected), got, rel_tol=1e-9)
        try:
            return not isinstance(got, bool) and Decimal(str(got)) == Decimal(expected)
        except InvalidOperation:
            return False
    if isinstance(expected, Stamp) and isinstance(got, str):
        return got == expected or parse_timestamp(got, zone_required=False) == expected.instant
    return bool(expected == got) and isinstance(expected, bool) == isinstance(got, bool)
