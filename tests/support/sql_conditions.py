"""Random conditions as SQL over one declaration of every type, and rows for them: what evaluators are compared on."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import polars as pl
from hypothesis import reject
from hypothesis import strategies as st

from nightjar.rules.errors import PredicateError
from nightjar.rules.predicates import Predicate, compile_predicate
from nightjar.rules.predicates.analysis import analyse
from nightjar.rules.predicates.nodes import Node
from nightjar.rules.predicates.parsing import parse
from nightjar.rules.predicates.source import Source
from nightjar.rules.types import BOOLEAN, DOUBLE, INT64, STRING, TIMESTAMP, FieldType, Kind, decimal

COLUMNS: dict[str, FieldType] = {
    "amount": decimal(9, 2),
    "large": decimal(18, 4),
    "number": INT64,
    "small": INT64,
    "ratio": DOUBLE,
    "name": STRING,
    "place": STRING,
    "flag": BOOLEAN,
    "seen": TIMESTAMP,
}
PHYSICAL = {Kind.DOUBLE: pl.Float64, Kind.STRING: pl.String, Kind.BOOLEAN: pl.Boolean}
# Whole numbers of this size, and decimals of them, become doubles without rounding twice.
EXACT_IN_DOUBLE = 2**53

_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "amount": st.integers(-999_999_999, 999_999_999) | st.integers(-300, 300),
    "large": st.integers(-EXACT_IN_DOUBLE, EXACT_IN_DOUBLE) | st.integers(-30_000, 30_000),
    "number": st.integers(-EXACT_IN_DOUBLE, EXACT_IN_DOUBLE) | st.integers(-5, 5),
    "small": st.integers(-5, 5),
    "ratio": st.floats(-1e6, 1e6, allow_nan=False).map(lambda value: value + 0.0) | st.sampled_from([0.0, 0.5, 2.0]),
    "name": st.sampled_from(["", "FAIL", "fail", "SUCCESS", "a%b", "a_b", "ab", "ä\n", "100.50"]),
    "place": st.text(st.sampled_from("abA%_\\.*é"), max_size=4),
    "flag": st.booleans(),
    "seen": st.integers(-62_000_000_000_000_000, 253_000_000_000_000_000)
    | st.integers(-86_400_000_000, 86_400_000_000),
}
Row = dict[str, Any]
ROWS: st.SearchStrategy[list[Row]] = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, values in _VALUES.items()}), min_size=1, max_size=8
)


@dataclass(frozen=True)
class Written:
    """A part of a predicate as text; `atom` where nothing can bind to its inside."""

    sql: str
    atom: bool = False

    @property
    def closed(self) -> str:
        return self.sql if self.atom else f"({self.sql})"


def _number_literal(value: Decimal) -> Written:
    return Written(f"{value:f}", atom=value >= 0)


NUMBERS = st.one_of(
    st.sampled_from([Written(name, atom=True) for name in ("amount", "large", "number", "small")]),
    st.decimals(-1000, 1000, places=2).map(_number_literal),
    st.integers(-10, 10).map(lambda value: _number_literal(Decimal(value))),
    # quotients of small numbers that are no doubles: where a value is rounded twice, = and > show it
    st.sampled_from([Written(text, atom=True) for text in ("0.1", "0.3", "0.7", "1", "3", "10", "49", "100")]),
)
DOUBLES = st.sampled_from(
    [Written(text, atom=True) for text in ("ratio", "CAST(amount AS DOUBLE)", "CAST(large AS DOUBLE)")]
)
STRINGS = st.one_of(
    st.sampled_from([Written("name", atom=True), Written("place", atom=True)]),
    st.sampled_from(["FAIL", "a", "", "it''s"]).map(lambda text: Written(f"'{text}'", atom=True)),
    st.sampled_from([Written("LOWER(name)", atom=True), Written("UPPER(name)", atom=True)]),
)
# DuckDB has these alike.
TRIMMED = st.sampled_from(
    [Written("TRIM(name)", atom=True), Written("TRIM(CONCAT(' ', COALESCE(place, ''), ' '))", atom=True)]
)
TIMES = st.sampled_from([Written("seen", atom=True), Written("TIMESTAMP '2018-04-01 12:30:00'", atom=True)])
COMPARISONS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])


def _called(name: str, *args: Written) -> Written:
    return Written(f"{name}({', '.join(arg.sql for arg in args)})", atom=True)


def _numeric(inner: st.SearchStrategy[Written]) -> st.SearchStrategy[Written]:
    """Arithmetic, written without parentheses where SQL's own precedence is to decide."""
    chains = st.lists(st.tuples(st.sampled_from("+-*"), inner), min_size=1, max_size=2)
    return st.one_of(
        st.builds(
            lambda first, rest: Written(first.closed + "".join(f" {op} {part.closed}" for op, part in rest)),
            inner,
            chains,
        ),
        st.builds(lambda left, right: Written(f"{left.closed} / {right.closed}"), inner, inner),
        inner.map(lambda part: Written(f"- {part.closed}")),
        inner.map(lambda part: Written(f"ABS({part.sql})", atom=True)),
        st.builds(lambda a, b: Written(f"COALESCE({a.sql}, {b.sql})", atom=True), inner, inner),
        st.builds(_called, st.just("NULLIF"), inner, inner),
    )


REMAINDERS = st.builds(
    lambda left, right: Written(f"{left.closed} % {right.closed}"),
    st.sampled_from([Written(name, atom=True) for name in ("amount", "large", "number", "small")]),
    st.sampled_from([Written("small", atom=True), Written("7", atom=True), Written("0.07", atom=True)]),
)
PARTS = st.sampled_from(
    ["YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "ISODOW", "DAYOFYEAR", "EPOCH"]
).map(lambda part: Written(f"EXTRACT({part} FROM seen)", atom=True))
ROUNDED = st.sampled_from(
    ["ROUND(amount, 1)", "ROUND(large)", "FLOOR(amount)", "CEIL(large)", "FLOOR(ratio)", "CEIL(ratio)"]
).map(lambda sql: Written(sql, atom=True))
LENGTHS = STRINGS.map(lambda part: Written(f"LENGTH({part.sql})", atom=True))
VALUES = st.recursive(st.one_of(NUMBERS, NUMBERS, DOUBLES, REMAINDERS, PARTS, LENGTHS, ROUNDED), _numeric, max_leaves=4)


def _list_of(values: st.SearchStrategy[Written]) -> st.SearchStrategy[str]:
    return st.lists(values, min_size=1, max_size=5).map(lambda parts: ", ".join(part.sql for part in parts))


def _compared(values: st.SearchStrategy[Written]) -> st.SearchStrategy[Written]:
    return st.builds(lambda a, op, b: Written(f"{a.closed} {op} {b.closed}"), values, COMPARISONS, values)


NOT = st.sampled_from(["", "NOT "])
PATTERNS = st.text(st.sampled_from("abAF%_\\.*"), max_size=4)
CONDITIONS = st.one_of(
    st.just(Written("flag", atom=True)),
    _compared(VALUES),
    _compared(STRINGS | TRIMMED),
    st.builds(_called, st.sampled_from(["STARTS_WITH", "ENDS_WITH"]), STRINGS, STRINGS),
    _compared(TIMES),
    st.builds(
        lambda a, no, b, c: Written(f"{a.closed} {no}BETWEEN {b.closed} AND {c.closed}"), VALUES, NOT, VALUES, VALUES
    ),
    st.builds(
        lambda name, no, items: Written(f"{name} {no}IN ({items})"),
        st.sampled_from(["amount", "large", "number", "small", "ratio"]),
        NOT,
        _list_of(st.decimals(-3, 3, places=3).map(_number_literal) | st.integers(-5, 5).map(lambda v: Written(str(v)))),
    ),
    st.builds(
        lambda no, items: Written(f"name {no}IN ({items})"),
        NOT,
        _list_of(st.sampled_from([Written("'FAIL'"), Written("''"), Written("'a%b'")])),
    ),
    st.builds(lambda no, pattern: Written(f"place {no}LIKE '{pattern}'"), NOT, PATTERNS),
    st.builds(lambda part, no: Written(f"{part.closed} IS {no}NULL"), VALUES | STRINGS, NOT),
)


def _combined(inner: st.SearchStrategy[Written]) -> st.SearchStrategy[Written]:
    negated = st.tuples(NOT, inner).map(lambda pair: f"{pair[0]}{pair[1].closed}")
    return st.one_of(
        st.builds(
            lambda first, rest: Written(first + "".join(f" {op} {part}" for op, part in rest)),
            negated,
            st.lists(st.tuples(st.sampled_from(["AND", "OR"]), negated), min_size=1, max_size=3),
        ),
        inner.map(lambda part: Written(f"NOT {part.closed}")),
        st.builds(
            lambda when, yes, no, op, other: Written(
                f"CASE WHEN {when.sql} THEN {yes.sql}{no} END {op} {other.closed}"
            ),
            inner,
            VALUES,
            st.just("") | VALUES.map(lambda part: f" ELSE {part.sql}"),
            COMPARISONS,
            VALUES,
        ),
        st.builds(
            lambda when, yes: Written(
                f"CASE small WHEN 1 THEN {when.sql} WHEN 2 THEN NULL ELSE {yes.sql} END", atom=True
            ),
            inner,
            inner,
        ),
    )


PREDICATES = st.recursive(CONDITIONS, _combined, max_leaves=5).map(lambda part: part.sql)

# Functions that other engines lack, or have with another meaning at some values.
WHOLE = st.sampled_from(["small", "number", "LENGTH(place)", "0", "1", "2", "-1"]).map(Written)
CALLED_STRINGS = st.recursive(
    STRINGS,
    lambda inner: st.one_of(
        st.builds(_called, st.just("SUBSTRING"), inner, WHOLE),
        st.builds(_called, st.just("SUBSTRING"), inner, WHOLE, WHOLE),
        st.builds(_called, st.just("CONCAT"), inner, inner),
        st.builds(_called, st.just("TRIM"), inner),
    ),
    max_leaves=3,
)
ZONES = st.sampled_from(
    [
        "name",
        "CASE small WHEN 1 THEN 'Asia/Kolkata' WHEN 2 THEN 'America/New_York' ELSE 'UTC' END",
        "SUBSTRING('UTC Europe/Berlin', small, 13)",
    ]
)
DEGREES = st.floats(-91, 91).map(lambda value: Written(f"{value:.6f}"))
CALLED_NUMBERS = st.recursive(
    VALUES,
    lambda inner: st.one_of(
        st.builds(_called, st.sampled_from(["SQRT", "LN", "EXP", "FLOOR", "CEIL", "ROUND"]), inner),
        st.builds(_called, st.just("ROUND"), inner, st.integers(-18, 18).map(lambda digits: Written(str(digits)))),
        st.builds(_called, st.sampled_from(["POWER", "GREATEST", "LEAST"]), inner, inner),
        st.builds(_called, st.sampled_from(["GREATEST", "LEAST"]), inner, inner, inner),
        st.builds(_called, st.just("DISTANCE_KM"), inner, DEGREES, DEGREES, inner),
        st.builds(_called, st.just("SECONDS_BETWEEN"), TIMES, TIMES),
        ZONES.map(lambda zone: Written(f"HOUR(seen AT TIME ZONE {zone})", atom=True)),
    ),
    max_leaves=3,
)
_ATOMS = st.sampled_from(
    [
        *("a", "b", "A", "é", ".", "%", "_", "[ab]", "[^a]", "[a-zé]", "[A-]", "^", "$"),
        *(r"\.", r"\\", r"\d", r"\w", r"\W", r"\s", r"\S", r"\b", r"\x41", r"[\w.]", r"[^\W_]", r"[\]\-*$]"),
    ]
)
REGEXPS = st.builds(
    lambda any_case, body: ("(?i)" if any_case else "") + body,
    st.booleans(),
    st.recursive(
        _ATOMS,
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map("".join),
            st.lists(inner | st.just(""), min_size=2, max_size=3).map("|".join),
            st.builds(
                lambda part, times: f"(?:{part}){times}",
                inner,
                st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,3}", "*?", "+?", "{1,2}?", ""]),
            ),
            inner.map(lambda part: f"({part})"),
        ),
        max_leaves=5,
    ),
)
CALLED = st.one_of(
    st.builds(
        lambda digits, network: Written(f"IP_IN(CONCAT('10.0.', {digits.sql}, '.7'), {network})", atom=True),
        CALLED_STRINGS | st.sampled_from(["SUBSTRING('0123', small, 1)"]).map(Written),
        st.sampled_from(["'10.0.0.0/16'", "'10.0.2.0/23', '::/0'", "'10.0.1.7'", "'::ffff:a00:0/118'", "'fe80::/10'"]),
    ),
    st.builds(lambda of, pattern: Written(f"REGEXP_LIKE({of.sql}, '{pattern}')", atom=True), CALLED_STRINGS, REGEXPS),
    _compared(CALLED_STRINGS),
    _compared(CALLED_NUMBERS),
    _compared(CALLED_NUMBERS),
    st.builds(_called, st.sampled_from(["GREATEST", "LEAST"]), STRINGS, STRINGS).map(
        lambda part: Written(f"{part.sql} = name")
    ),
    st.builds(_called, st.sampled_from(["STARTS_WITH", "ENDS_WITH"]), CALLED_STRINGS, CALLED_STRINGS),
)
WITH_CALLS = st.recursive(CONDITIONS | CALLED | CALLED, _combined, max_leaves=4).map(lambda part: part.sql)

# All that 64 bits and a double without NaN hold, and no row at all too.
EXTREMES: st.SearchStrategy[list[Row]] = st.lists(
    st.fixed_dictionaries(
        {
            name: st.none() | values
            for name, values in (
                _VALUES
                | dict.fromkeys(["number", "small"], st.integers(-(2**63), 2**63 - 1) | st.integers(-1, 1))
                | {"ratio": st.floats(allow_nan=False).map(lambda value: value + 0.0)}
            ).items()
        }
    ),
    max_size=8,
)


def physical(given_rows: list[Row]) -> pl.DataFrame:
    schema = {name: PHYSICAL.get(kind.kind, pl.Int64) for name, kind in COLUMNS.items()}
    return pl.DataFrame({name: [row[name] for row in given_rows] for name in schema}, schema=schema)


def compiled(text: str) -> tuple[Predicate, Node]:
    """A drawn condition as it runs, and its typed tree; one that is refused ends the example."""
    source = Source(text, "")
    try:
        predicate = compile_predicate(text, COLUMNS)
    except PredicateError:
        reject()
    root = analyse(parse(source, COLUMNS), source, COLUMNS)
    assert root is not None, "every column has a type"
    return predicate, root
