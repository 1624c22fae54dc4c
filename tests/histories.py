"""Random streams of events and rules, each said twice: for nightjar (a mapping, SQL text) and for the reference."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from reference import Event, Measure, Setting, Version

from rules.model import parse_rule
from rules.streams import Stream, streams_from_mapping
from rules.versions import RuleSet

SECOND = 1_000_000
LATENESS = 10 * SECOND
STREAM: Stream = streams_from_mapping(
    {
        "things": {
            "topic": "things",
            "event_id": "id",
            "event_time": "at",
            "entities": ["who"],
            "allowed_lateness": "10s",
            "max_future_skew": "1m",
            "fields": {
                "id": "string",
                "at": "timestamp",
                "who": "string",
                "place": "string",
                "amount": "decimal(12,2)",
                "large": "decimal(18,3)",
                "number": "int64",
                "ratio": "double",
                "flag": "boolean",
                "seen": "timestamp",
            },
        }
    },
    "tests",
)["things"]
STREAMS = {"things": STREAM}
Logic = Callable[[dict[str, Any]], bool | None]


@dataclass(frozen=True)
class Said:
    """One predicate, as SQL and as a function with three truth values."""

    sql: str
    truth: Logic

    def test(self, row: dict[str, Any]) -> bool:
        return self.truth(row) is True


def _and(a: bool | None, b: bool | None) -> bool | None:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


OPERATORS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _compare(name: str, symbol: str, sql: str, literal: Any) -> Said:
    def truth(row: dict[str, Any]) -> bool | None:
        return None if row[name] is None else OPERATORS[symbol](row[name], literal)

    return Said(f"{name} {symbol} {sql}", truth)


def _symbols() -> st.SearchStrategy[str]:
    return st.sampled_from(sorted(OPERATORS))


@functools.cache
def comparisons(name: str, kind: str) -> st.SearchStrategy[Said]:
    """Comparisons of one field or measure with a literal that data is likely to meet."""
    cents = st.integers(-300, 300)
    if kind == "decimal":
        return st.builds(lambda s, c: _compare(name, s, f"{c / 100:.2f}", Decimal(c) / 100), _symbols(), cents)
    if kind == "int64":
        return st.builds(lambda s, c: _compare(name, s, str(c), c), _symbols(), st.integers(-3, 6))
    if kind == "double":
        return st.builds(lambda s, c: _compare(name, s, repr(c), c), _symbols(), st.sampled_from([-1.5, 0.0, 0.1, 2.5]))
    if kind == "string":
        return st.builds(
            lambda s, c: _compare(name, s, f"'{c}'", c), st.sampled_from(["=", "<>"]), st.sampled_from(["a", "b"])
        )
    if kind == "boolean":
        return st.just(Said(name, lambda row: row[name]))
    return st.just(Said(f"{name} IS NOT NULL", lambda row: row[name] is not None))


@functools.cache  # a strategy takes far longer to make than to draw from
def predicates(kinds: tuple[tuple[str, str], ...]) -> st.SearchStrategy[Said]:
    """Comparisons joined by AND, OR and NOT; kinds: (name, kind) of the columns."""
    leaves = st.one_of([comparisons(name, kind) for name, kind in kinds])
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(
                lambda a: Said(f"NOT ({a.sql})", lambda row: None if a.truth(row) is None else not a.truth(row)), inner
            ),
            st.builds(
                lambda a, b: Said(f"({a.sql}) AND ({b.sql})", lambda row: _and(a.truth(row), b.truth(row))),
                inner,
                inner,
            ),
            st.builds(
                lambda a, b: Said(
                    f"({a.sql}) OR ({b.sql})",
                    lambda row: None if (both := _and(_not(a.truth(row)), _not(b.truth(row)))) is None else not both,
                ),
                inner,
                inner,
            ),
        ),
        max_leaves=3,
    )


def _not(a: bool | None) -> bool | None:
    return None if a is None else not a


FIELD_KINDS = {
    "place": "string",
    "amount": "decimal",
    "number": "int64",
    "ratio": "double",
    "flag": "boolean",
    "seen": "timestamp",
}
FIELD_PREDICATES = predicates(tuple(FIELD_KINDS.items()))
PERHAPS = st.none() | FIELD_PREDICATES
_NUMBERS = ("amount", "large", "number", "ratio")
_ANY = ("place", "amount", "large", "number", "ratio", "flag", "seen", "id")
_FIELDS_OF = {
    "count": (None, *_ANY),
    "sum": _NUMBERS,
    "avg": _NUMBERS,
    "stddev": _NUMBERS,
    "min": (*_NUMBERS, "seen"),
    "max": (*_NUMBERS, "seen"),
    "count_distinct": _ANY,
    "first": _ANY,
    "last": _ANY,
}
_RESULT = {"count": "int64", "count_distinct": "int64", "avg": "double", "stddev": "double"}


def _result_kind(function: str, field: str | None) -> str:
    kinds = {"large": "decimal", "id": "string", **FIELD_KINDS}
    return _RESULT.get(function) or kinds[str(field)]


@st.composite
def measures(draw: st.DrawFn) -> tuple[dict[str, Any], Measure, str]:
    """A measure as a rule writes it, as the reference takes it, and the kind of its result."""
    function = draw(st.sampled_from(sorted(_FIELDS_OF)))
    name = draw(st.sampled_from(_FIELDS_OF[function]))
    over = draw(st.sampled_from([1, 3, 8, 30]))
    where = draw(PERHAPS)
    since = draw(PERHAPS)
    per = draw(st.sampled_from([(), ("place",), ("number",), ("place", "flag")]))
    excluding = draw(st.booleans())
    written: dict[str, Any] = {function: name or "*", "over": f"{over}s"}
    if where:
        written["where"] = where.sql
    if since:
        written["since"] = since.sql
    if per:
        written["per"] = list(per)
    if excluding:
        written["excluding_current"] = True
    measure = Measure(
        function, name, over * SECOND, where.test if where else Said("", lambda row: True).test, per, excluding,
        since.test if since else None,
    )  # fmt: skip
    return written, measure, _result_kind(function, name)


@st.composite
def rules(draw: st.DrawFn, rule_id: str, *, effective: int | None = None) -> tuple[dict[str, Any], Version]:
    """One version of a rule, for nightjar and for the reference."""
    drawn = {f"m{i}": draw(measures()) for i in range(draw(st.integers(1, 3)))}
    group_by = draw(st.sampled_from([("who",), ("who", "place"), ("number",), ()]))
    where = draw(PERHAPS)
    when = draw(predicates((("amount", "decimal"), *((name, kind) for name, (_, _, kind) in drawn.items()))))
    written: dict[str, Any] = {
        "id": rule_id,
        "stream": "things",
        "group_by": list(group_by),
        "measures": {name: text for name, (text, _, _) in drawn.items()},
        "when": when.sql,
        "state": draw(st.sampled_from(["active", "active", "active", "shadow", "paused", "retired"])),
        "description": "m0 is {m0} at {place}",
    }
    if where:
        written["where"] = where.sql
    if effective is not None:
        written["effective"] = f"1970-01-01T00:{effective // SECOND // 60:02d}:{effective // SECOND % 60:02d}Z"
    version = Version(
        rule_id,
        1,
        effective or 0,
        group_by,
        {name: measure for name, (_, measure, _) in drawn.items()},
        when.test,
        where.test if where else Said("", lambda row: True).test,
        written["state"] in ("active", "shadow"),
    )
    return written, version


@st.composite
def rule_sets(draw: st.DrawFn) -> tuple[RuleSet, list[Version]]:
    """Up to two rules with up to two versions each, in the order of publication."""
    ruleset, versions = RuleSet(), []
    counts: dict[str, int] = {}
    for _ in range(draw(st.integers(1, 3))):
        rule_id = draw(st.sampled_from(["one", "two"]))
        counts[rule_id] = counts.get(rule_id, 0) + 1
        effective = 0 if counts[rule_id] == 1 else draw(st.integers(1, 60)) * SECOND
        written, version = draw(rules(rule_id, effective=effective))
        version.version = counts[rule_id]
        versions.append(version)
        ruleset = ruleset.publish(parse_rule(written, STREAMS), 0, 0)
    return ruleset, versions


_DELAYS = st.sampled_from([0, 0, 0, 1, 2, 5, 10])
_LATE_DELAYS = st.sampled_from([0, 0, 0, 1, 2, 5, 10, 11, 15, 30])
_STEPS = st.sampled_from([0, 0, 1, 1, 2, 5])
_VALUES = st.fixed_dictionaries(
    {
        "who": st.sampled_from(["x", "x", "y", None]),
        "place": st.sampled_from(["a", "b", None]),
        "amount": st.none() | st.integers(-300, 300).map(lambda cents: Decimal(cents) / 100),
        "large": st.none() | st.integers(-(10**18) + 1, 10**18 - 1).map(lambda n: Decimal(n).scaleb(-3)),
        "number": st.none() | st.integers(-2, 2) | st.just(2**61),
        "ratio": st.none() | st.sampled_from([0.1, -1.5, 1e16, 2.5, 1e-9, -0.0]),
        "flag": st.none() | st.booleans(),
        "seen": st.none() | st.integers(0, 5).map(lambda s: s * SECOND),
    }
)


@st.composite
def events(draw: st.DrawFn, *, lateness: bool, most: int = 25) -> list[Event]:
    """Events in the order of arrival, with disorder, equal times, NULLs and repeated ids."""
    arrival = 60 * SECOND
    made: list[Event] = []
    for _ in range(draw(st.integers(0, most))):
        arrival += draw(_STEPS) * SECOND
        if made and draw(st.integers(0, 9)) == 0:
            made.append({**draw(st.sampled_from(made)), "arrival": arrival})
            continue
        at = arrival - draw(_LATE_DELAYS if lateness else _DELAYS) * SECOND
        identifier = f"e{draw(st.integers(0, 99)):02d}-{len(made)}"
        made.append({"id": identifier, "at": at, **draw(_VALUES), "arrival": arrival})
    return made


def table(made: list[Event]) -> pa.Table:
    """The events as the engine takes them."""
    columns = {name: pa.array([e[name] for e in made], kind.arrow) for name, kind in STREAM.fields.items()}
    columns["arrival_time"] = pa.array([e["arrival"] for e in made], pa.int64()).cast(pa.timestamp("us", "UTC"))
    return pa.table(columns)


SETTING = Setting("id", "at", LATENESS)
TRUTH = Setting("id", "at", None)
