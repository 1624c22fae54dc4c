"""What a case expected against what came: rows matched by the keys that matter, differences shown row by row."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from nightjar.cases.documents import Number, Stamp, json_text
from nightjar.cases.model import SECTIONS, Expectation, Outcome, Row
from rules.timestamps import parse_timestamp

# Keys with text for people: what is expected needs to be in it, not to be all of it.
_PROSE = frozenset({"detail", "reasons"})
_ABSENT = object()


@dataclass(frozen=True)
class Mismatch:
    """A key (`measures.spent`) whose value is not as expected; `got` is None too where there is no such key."""

    path: str
    expected: Any
    got: Any


@dataclass(frozen=True)
class Difference:
    """A row that was expected and did not come (with the nearest that did), or one that came and was not expected."""

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


def _as_json(expected: Any) -> Any:
    return json.loads(json_text(expected))


def check(expect: Expectation, outcome: Outcome) -> list[Difference]:
    """What is not as expected, in the sections the case names; nothing where all is.

    Rows are matched whatever their order, since records of different keys have none on Kafka; the revisions of an
    alert and `emitted_at` tell what came first.
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
    """The most expected rows that can each have a row of their own that matches: expected place → got place.

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
        said = " ".join(got) if isinstance(got, list) else str(got)
        parts = expected if isinstance(expected, list) else [expected]
        if not all(str(part) in said for part in parts):
            yield Mismatch(path, expected, got)
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        for at, (one, other) in enumerate(zip(expected, got, strict=True)):
            yield from _mismatches(f"{path}.{at}", one, other)
    elif not _equal(expected, got):
        yield Mismatch(path, expected, None if got is _ABSENT else got)


def _equal(expected: Any, got: Any) -> bool:
    """A number is compared by its value (12.5 is "12.50", a double to nine digits), quoted text as it stands."""
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
