"""Random streams, events and rules, each rule both for nightjar (a mapping, SQL text) and for the reference."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from nightjar.rules.allowing import OF_ALERTS
from nightjar.rules.durations import MICROSECONDS, format_duration, parse_duration
from nightjar.rules.model import parse_rule
from nightjar.rules.streams import Stream, streams_from_mapping
from nightjar.rules.tables import TableType
from nightjar.rules.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP, iso_text
from nightjar.rules.types import FieldType, Kind
from nightjar.rules.versions import RuleSet
from tests.support.random_predicates import ALWAYS, NEVER, Predicate, predicates
from tests.support.reference import OVERFLOW, Event, Measure, Setting, Version

SECOND = MICROSECONDS["s"]
# Whatever a stream may have here beside its events' ids and times.
FIELDS = {
    "who": "string",
    "place": "string",
    "amount": "decimal(12,2)",
    "large": "decimal(18,3)",
    "fraction": "decimal(18,18)",
    "whole": "decimal(18,0)",
    "number": "int64",
    "ratio": "double",
    "flag": "boolean",
    "seen": "timestamp",
}
_ORDERING = ("number", "seen", "amount", "fraction")  # those that may break ties


def declared(
    fields: tuple[str, ...],
    *,
    name: str = "things",
    event_id: str,
    event_time: str,
    allowed_lateness: str,
    max_future_skew: str,
    entities: tuple[str, ...] = (),
    tiebreaker: str | None = None,
) -> Stream:
    """A stream of these of the FIELDS, its ids and times first; its entity is the first of them unless given."""
    kinds = {event_id: "string", event_time: "timestamp", **{each: FIELDS[each] for each in fields}}
    written = {
        "event_id": event_id,
        "event_time": event_time,
        "entities": [*(entities or fields[:1])],
        "allowed_lateness": allowed_lateness,
        "max_future_skew": max_future_skew,
        "fields": kinds,
        **({"tiebreaker": tiebreaker} if tiebreaker else {}),
    }
    return streams_from_mapping({name: written}, "tests")[name]


STREAM = declared(
    tuple(FIELDS),
    event_id="id",
    event_time="at",
    allowed_lateness="10s",
    max_future_skew="1m",
    tiebreaker="number",
)
STREAMS = {STREAM.name: STREAM}
LATENESS = STREAM.allowed_lateness


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """Streams of some fields, whose events may be late, or early, to some degree."""
    fields = tuple(draw(st.lists(st.sampled_from(tuple(FIELDS)), min_size=2, max_size=7, unique=True)))
    return declared(
        fields,
        event_id=draw(st.sampled_from(("id", "reference"))),
        event_time=draw(st.sampled_from(("moment", "happened"))),
        allowed_lateness=draw(st.sampled_from(("10s", "2s", "1m", "0s"))),
        max_future_skew=draw(st.sampled_from(("0s", "2s"))),
        tiebreaker=draw(tiebreakers(fields)),
    )


def tiebreakers(fields: tuple[str, ...]) -> st.SearchStrategy[str | None]:
    """None, or one of the fields that may be the tie-breaker."""
    return st.sampled_from((None, *(name for name in fields if name in _ORDERING)))


def united(stream: Stream, tiebreaker: str | None) -> Stream:
    """A union of its name of two streams, "x" and "y", that have the stream's fields, the second not the last of them;
    with this tie-breaker, or a union's own."""
    names = [name for name in stream.fields if name not in (stream.event_id, stream.event_time)]
    written = {
        name: {
            "event_id": stream.event_id,
            "event_time": stream.event_time,
            "entities": names[:1],
            "allowed_lateness": format_duration(stream.allowed_lateness),
            "max_future_skew": format_duration(stream.max_future_skew),
            "fields": {
                stream.event_id: "string",
                stream.event_time: "timestamp",
                **{each: FIELDS[each] for each in of},
            },
        }
        for name, of in ((f"{stream.name}_x", names), (f"{stream.name}_y", names[:-1] or names))
    }
    union = {
        "union": {"x": f"{stream.name}_x", "y": f"{stream.name}_y"},
        "entities": [*stream.entities],
        **({"tiebreaker": tiebreaker} if tiebreaker else {}),
    }
    return streams_from_mapping({**written, stream.name: union}, "tests")[stream.name]


# Rules

_NUMBERS = {"decimal", "int64", "double"}
_ANY = {*_NUMBERS, "string", "boolean", "timestamp"}
_FUNCTIONS = {
    "count": _ANY,
    "sum": _NUMBERS,
    "avg": _NUMBERS,
    "stddev": _NUMBERS,
    "min": {*_NUMBERS, "timestamp"},
    "max": {*_NUMBERS, "timestamp"},
    "count_distinct": _ANY,
    "first": _ANY,
    "last": _ANY,
    "previous": _ANY,
    "median": _NUMBERS,
    "percentile": _NUMBERS,
    "mode": _ANY,
    "values": _ANY - {"double"},
    "sequence": set(),
}
# With a resolution.
_FOLDING = ("count", "sum", "avg", "stddev", "min", "max")
_SUMMING = ("sum", "avg", "stddev")
OVERS = ("30s", "3s", "1s", "500ms", "8s", "30s", "2m", "2m")
_DELAYS = ("1s", "1s", "500ms", "3s", "8s", "30s")
_ZONES = (None, "Europe/Berlin", "America/Havana", "Asia/Kathmandu")
_LONGEST = {"day": "27h", "week": "171h", "month": "747h"}
_SESSIONS = ("1s", "2s", "500ms", "5s", "10s")
WITHINS = ("1s", "3s", "500ms", "8s", "30s")
_RESOLUTIONS = ("1s", "2s", "7s", "30s", "1m")
_PERCENTS = ("95", "99.9", "50", "1", "25", "33.333")
_RESULT = {
    "count": "int64",
    "count_distinct": "int64",
    "avg": "double",
    "stddev": "double",
    "median": "double",
    "percentile": "double",
    "values": "string",
    "sequence": "int64",
}


def kinds_of(stream: Stream) -> tuple[tuple[str, str], ...]:
    """(name, kind) of the fields that predicates read."""
    own = (stream.event_id, stream.event_time)
    return tuple((name, kind.kind.value) for name, kind in stream.fields.items() if name not in own)


# The table that random rules ask, about the first of these fields that the stream has, and a value of its rows.
TABLE = "listed"
VALUE = "level"
LOOKED_UP = f"{TABLE}.{VALUE}"
_ASKED = ("who", "place", "number")


def asked(stream: Stream) -> tuple[str, str] | None:
    """The field that rules ask the stream's table about, and how conditions do; None where it has no table."""
    field = next((name for name in _ASKED if name in stream.fields), "")
    return (field, f"({field} IN {TABLE})") if stream.tables else None


def asking(stream: Stream) -> Stream:
    """The stream with a table that rules can ask, if it has such a field."""
    field = next((name for name in _ASKED if name in stream.fields), None)
    values = ((VALUE, FieldType(Kind.INT64)),)
    tables = {} if field is None else {TABLE: TableType(stream.fields[field].kind, values=values)}
    return replace(stream, tables=MappingProxyType(tables))


def conditions_of(stream: Stream) -> tuple[tuple[str, str], ...]:
    """(name, kind) of what conditions on events can read: fields, whether a field's value is in the table, and the
    value of its row there."""
    found = asked(stream)
    return kinds_of(stream) if found is None else (*kinds_of(stream), (found[1], "boolean"), (LOOKED_UP, "int64"))


def result_kind(measure: Measure, stream: Stream) -> Kind:
    """What kind of value a measure has."""
    if measure.over_alerts:
        return Kind.INT64
    return Kind(_RESULT.get(measure.function) or stream.fields[str(measure.field)].kind)


# Fields with so few values that events share them.
SHARED = ("who", "place", "number", "flag", "seen")


@functools.cache
def _some(names: tuple[str, ...], most: int) -> st.SearchStrategy[list[str]]:
    """Some of the fields, mostly of those that make groups of several events."""
    shared = tuple(name for name in names if name in SHARED) or names
    lists = [st.lists(st.sampled_from(among), max_size=most, unique=True) for among in (shared, shared, names)]
    return st.one_of(lists)


def shown_as(kind: FieldType) -> Callable[[Any], str]:
    """How a list shows a field's values."""
    match kind.kind:
        case Kind.BOOLEAN:
            return lambda value: "true" if value else "false"
        case Kind.DECIMAL:
            return lambda value: f"{value:.{kind.scale}f}"
        case Kind.TIMESTAMP:
            return iso_text
    return str


@dataclass(frozen=True)
class _Window:
    """The options that say which events a measure sees."""

    over: str
    since: Predicate | None
    per: tuple[str, ...]
    excluding_current: bool
    episode: bool
    until: Predicate | None
    resolution: str | None
    delay: str | None = None
    excluding_start: bool = False
    calendar: tuple[str, str | None] | None = None
    session: str | None = None


@st.composite
def _keys(draw: st.DrawFn, stream: Stream, most: int) -> tuple[str, ...]:
    """Fields whose values are one key; now and then with the event's id."""
    fields = tuple(draw(_some(tuple(name for name, _ in kinds_of(stream)), most)))
    return (*fields, stream.event_id) if draw(st.integers(0, 11)) == 11 else fields


@st.composite
def _windows(draw: st.DrawFn, stream: Stream, overs: tuple[str, ...], *, foldable: bool, stepped: bool) -> _Window:
    """overs: how long they may be; foldable: whether measures of the rule may have a resolution; stepped: whether they
    have one."""
    if stepped:
        over = draw(st.sampled_from(overs))
        resolution = draw(st.sampled_from(_RESOLUTIONS[:3]))
        return _Window(over, None, (), draw(st.booleans()), episode=False, until=None, resolution=resolution)
    episode = draw(st.integers(0, 3)) == 3
    reset = draw(predicates(conditions_of(stream))) if draw(st.integers(0, 2)) == 2 else None
    over = draw(st.sampled_from(overs))
    per = draw(_keys(stream, 2)) if draw(st.integers(0, 2)) == 2 else ()
    fine = [step for step in _RESOLUTIONS if parse_duration(step) <= parse_duration(over)]
    may_fold = foldable and fine and not (episode or reset or per)
    resolution = draw(st.sampled_from(fine)) if may_fold and draw(st.booleans()) else None
    sliding = not (episode or resolution)
    if sliding and draw(st.integers(0, 9)) == 9:
        calendar = draw(st.sampled_from(("day", "week", "month"))), draw(st.sampled_from(_ZONES))
        return _Window(over, reset, per, draw(st.booleans()), episode, None, None, calendar=calendar)
    delay = draw(st.sampled_from(_DELAYS)) if sliding and draw(st.integers(0, 3)) == 3 else None
    shorter = [length for length in _SESSIONS if parse_duration(length) < parse_duration(over)]
    session = draw(st.sampled_from(shorter)) if sliding and not delay and shorter and draw(st.booleans()) else None
    return _Window(
        over,
        None if episode else reset,
        per,
        delay is None and draw(st.booleans()),
        episode,
        reset if episode else None,
        resolution,
        delay,
        sliding and draw(st.integers(0, 3)) == 3,
        session=session,
    )


@st.composite
def measures(draw: st.DrawFn, stream: Stream, window: _Window) -> tuple[dict[str, Any], Measure, str]:
    """A measure as a rule writes it, as the reference takes it, and the kind of its result."""
    fields = {name: kind.kind.value for name, kind in stream.fields.items()}
    possible = [f for f, accepted in _FUNCTIONS.items() if accepted & set(fields.values())]
    if window.resolution:
        possible = [f for f in possible if f in _FOLDING]
    if window.delay:
        possible = [f for f in possible if f != "previous"]
    if not (window.resolution or window.excluding_current or window.delay):
        possible.append("sequence")
    function = draw(st.sampled_from(possible))
    accepted = _FUNCTIONS[function] - ({"double"} if window.resolution and function in _SUMMING else set())
    fitting = [name for name, kind in fields.items() if kind in accepted]
    steps: list[Predicate] = []
    if function == "sequence":
        steps = [draw(predicates(conditions_of(stream))) for _ in range(draw(st.integers(2, 4)))]
    elif not fitting:
        function, fitting = "count", [*fields]
    name = None if steps else draw(st.sampled_from([None, *fitting] if function == "count" else fitting))
    columns = kinds_of(stream) if window.resolution else conditions_of(stream)
    where = draw(predicates(columns)) if draw(st.booleans()) else None
    p = draw(st.sampled_from(_PERCENTS)) if function == "percentile" else "95"
    under = (
        {"of": name, "p": float(p) if "." in p else int(p)}
        if function == "percentile"
        else [step.sql for step in steps] or name or "*"
    )
    written: dict[str, Any] = {function: under, "episode" if window.episode else "over": window.over}
    calendar = None
    if window.calendar:
        unit, zone = window.calendar
        del written["over"]
        written["calendar"], calendar = unit, (unit, zone or "UTC")
        if zone:
            written["zone"] = zone
    if where:
        written["where"] = where.sql
    if window.since:
        written["since"] = window.since.sql
    if window.until:
        written["until"] = window.until.sql
    if window.per:
        written["per"] = list(window.per)
    if window.excluding_current and function != "previous":
        written["excluding_current"] = True
    if window.excluding_start:
        written["excluding_start"] = True
    if window.resolution:
        written["resolution"] = window.resolution
    if window.delay:
        written["delay"] = window.delay
    if window.session:
        written["session"] = window.session
    measure = Measure(
        function,
        name,
        parse_duration(window.over if calendar is None else _LONGEST[calendar[0]]),
        where.test if where else ALWAYS,
        window.per,
        window.excluding_current,
        window.since.test if window.since else None,
        shown_as(stream.fields[name]) if name else str,
        window.episode,
        window.until.test if window.until else NEVER,
        parse_duration(window.resolution) if window.resolution else 0,
        where.sql if where else None,
        parse_duration(window.delay) if window.delay else 0,
        window.excluding_start,
        p,
        calendar,
        parse_duration(window.session) if window.session else 0,
        steps=tuple(step.test for step in steps),
    )
    return written, measure, result_kind(measure, stream).value


@st.composite
def _over_alerts(
    draw: st.DrawFn, stream: Stream, overs: tuple[str, ...], names: tuple[str, ...]
) -> tuple[dict[str, Any], Measure, str]:
    """A measure over alerts of some of these rules and tags."""
    window = draw(_windows(stream, overs, foldable=False, stepped=False).filter(lambda window: not window.episode))
    written, measure, _ = draw(measures(stream, replace(window, excluding_current=window.excluding_current)))
    function, of = draw(st.sampled_from((("count", "*"), ("sum", "score"), ("count_distinct", "rule"))))
    named = tuple(draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True)))
    options = {key: value for key, value in written.items() if key != measure.function}
    if window.excluding_current:
        options["excluding_current"] = True
    made = replace(measure, function=function, field=None, steps=(), over_alerts=named)
    return {function: of, **options, "over_alerts": [*named]}, made, "int64"


@st.composite
def _nested(
    draw: st.DrawFn,
    name: str,
    drawn: dict[str, tuple[dict[str, Any], Measure, str]],
    kinds: tuple[tuple[str, str], ...],
) -> tuple[dict[str, Any], Measure, str]:
    """The measure of that name with a condition over others, where it may have one."""
    written, measure, kind = drawn[name]
    looked_at = {each for _, other, _ in drawn.values() for each in other.reads}
    others = [
        (each, its_kind)
        for each, (_, other, its_kind) in drawn.items()
        if each != name and not (other.reads or other.resolution or other.over_alerts or other.function == "values")
    ]
    if measure.resolution or measure.over_alerts or name in looked_at or not others:
        return written, measure, kind
    where = draw(predicates((*others, draw(st.sampled_from(kinds)))))
    reads = tuple(each for each, _ in others if re.search(rf"\b{each}\b", where.sql))
    return {**written, "where": where.sql}, replace(measure, where=where.test, counts=where.sql, reads=reads), kind


@st.composite
def _computed(
    draw: st.DrawFn, columns: tuple[tuple[str, str], ...]
) -> tuple[str, Callable[[dict[str, Any]], Any], str]:
    """A computed measure as SQL, for the reference, and its kind. columns: names and kinds of what it may read."""
    whole = [name for name, kind in columns if kind == "int64"]
    numbers = [name for name, kind in columns if kind in _NUMBERS]
    form = draw(st.sampled_from(("ratio", "difference", "condition", "case")))
    if form == "ratio" and numbers:
        a, b = draw(st.sampled_from(numbers)), draw(st.sampled_from(numbers))
        return f"{a} / {b}", functools.partial(_quotient, a, b), "double"
    if form == "difference" and whole:
        a, b = draw(st.sampled_from(whole)), draw(st.sampled_from(whole))
        return f"{a} - {b}", functools.partial(_difference, a, b), "int64"
    condition = draw(predicates(columns))
    if form == "case":
        sql = f"CASE WHEN {condition.sql} THEN 'a' ELSE 'c' END"
        return sql, lambda row: "a" if condition.test(row) else "c", "string"
    return condition.sql, condition.truth, "boolean"


def _quotient(a: str, b: str, row: dict[str, Any]) -> Any:
    if row[a] is None or not row[b]:
        return None
    found = float(row[a]) / float(row[b])
    return OVERFLOW if math.isinf(found) else found


def _difference(a: str, b: str, row: dict[str, Any]) -> Any:
    if row[a] is None or row[b] is None:
        return None
    found = row[a] - row[b]
    return found if -(2**63) <= found < 2**63 else OVERFLOW


@st.composite
def rules(
    draw: st.DrawFn,
    rule_id: str,
    stream: Stream = STREAM,
    *,
    effective: int | None = None,
    overs: tuple[str, ...] = OVERS,
    stepped: bool = False,
    naming: tuple[str, ...] = (),
    of_group: tuple[str, ...] | None = None,
    allowing: tuple[str, ...] = (),
) -> tuple[dict[str, Any], Version]:
    """One version of a rule, for nightjar and for the reference. effective: µs, written where it is given; overs: how
    long its windows may be; stepped: whether all have a resolution; naming: the rules and tags whose alerts it counts;
    of_group: its group-by, where it is given; allowing: the rules and tags of which it silences some, as an allow
    rule."""
    drawn: dict[str, tuple[dict[str, Any], Measure, str]] = {}
    resets = not (stepped or allowing) and draw(st.integers(0, 3)) == 3
    waits = not (stepped or resets or naming or allowing) and draw(st.integers(0, 2)) == 2
    group_by = draw(_keys(stream, draw(st.sampled_from((1, 1, 1, 2, 3)))))
    group_by = group_by if of_group is None else of_group
    if stepped:
        group_by = tuple(name for name in group_by if name != stream.event_id)
    foldable = not (resets or waits or allowing) and stream.event_id not in group_by
    for number in range(draw(st.sampled_from((1, 0, 2, 3, 4)))):
        # measures of one window are found together
        if not drawn or draw(st.booleans()):
            window = draw(_windows(stream, overs, foldable=foldable, stepped=stepped))
        drawn[f"m{number}"] = draw(measures(stream, window))
    for number in range(draw(st.integers(1, 2)) if naming else 0):
        drawn[f"a{number}"] = draw(_over_alerts(stream, overs, naming))
    kinds = kinds_of(stream)
    names = tuple(name for name, _ in kinds)
    for name in drawn if not (resets or waits) else ():
        if draw(st.integers(0, 3)) == 3:
            drawn[name] = draw(_nested(name, drawn, conditions_of(stream)))
    folding = any(measure.resolution for _, measure, _ in drawn.values())
    columns = kinds if folding else conditions_of(stream)
    where = draw(predicates(columns)) if draw(st.integers(0, 3)) == 3 else None
    of_table = {(name, kind) for name, kind in conditions_of(stream) if (name, kind) not in kinds}
    read = {(name, kind) for name, kind in kinds if name == "amount"} | of_table | {kinds[0]}
    compared = [(name, kind) for name, (_, measure, kind) in drawn.items() if measure.function != "values"]
    computed: dict[str, tuple[str, Callable[[dict[str, Any]], Any]]] = {}
    for number in range(draw(st.sampled_from((0, 0, 0, 1, 2)))):
        sql, value, kind = draw(_computed((*sorted(read), *compared)))
        computed[f"c{number}"] = sql, value
        compared.append((f"c{number}", kind))
    when = draw(predicates((*sorted(read), *compared)))
    if allowing and draw(st.booleans()):  # else most would silence nothing
        when = Predicate("TRUE", lambda row: True)
    written: dict[str, Any] = {
        "id": rule_id,
        "stream": stream.name,
        "state": draw(st.sampled_from((*["active"] * 6, "shadow", "paused", "retired"))),
        "group_by": list(group_by),
        # in any order
        "measures": {name: sql for name, (sql, _) in reversed(computed.items())}
        | {name: text for name, (text, _, _) in drawn.items()},
        "when": when.sql,
        "severity": draw(st.sampled_from(("medium", "high"))),
        "description": f"m0 is {{m0}} at {{{names[-1]}}}" if "m0" in drawn else f"at {{{names[-1]}}}",
    }
    score, tags = draw(st.sampled_from((None, 40, 40, 1, 0, -5))), draw(st.sampled_from(((), ("a",), ("a", "b"))))
    written |= ({} if score is None else {"score": score}) | ({"tags": [*tags]} if tags else {})
    if (found := asked(stream)) is not None:
        written["lookup"] = {TABLE: found[0]}
    if resets:
        written["reset_after_alert"] = True
    unless = draw(predicates(kinds)) if waits else None
    within = draw(st.sampled_from(WITHINS)) if waits else None
    if unless and within:
        written["unless"] = {"within": within, "where": unless.sql}
    if where:
        written["where"] = where.sql
    if effective is not None:
        written["effective"] = iso_text(effective)
    by_verdict = draw(st.integers(0, 3)) == 3
    if by_verdict:
        written["revisions"] = "verdict"
    mute = draw(st.sampled_from(("1s", "3s", "8s", "30s", "2m"))) if draw(st.integers(0, 2)) == 2 else None
    if mute:
        written["mute"] = mute
    version = Version(
        rule_id,
        1,
        effective or 0,
        group_by,
        {name: measure for name, (_, measure, _) in drawn.items()},
        when.test,
        where.test if where else ALWAYS,
        written["state"] in ("active", "shadow"),
        written["state"] == "retired",
        by_verdict,
        parse_duration(mute) if mute else 0,
        resets,
        sees=where.sql if where else None,
        computed={name: value for name, (_, value) in computed.items()},
        score=score,
        tags=tags,
        shadow=written["state"] == "shadow",
        unless=unless.test if unless else None,
        within=parse_duration(within) if within else 0,
    )
    if allowing:
        silenced = tuple(draw(st.lists(st.sampled_from(allowing), min_size=1, max_size=2, unique=True)))
        written = {key: value for key, value in written.items() if key not in OF_ALERTS} | {"allows": [*silenced]}
        version = replace(version, allows=silenced, by_verdict=False, mute=0, score=None, tags=())
    return written, version


@st.composite
def rule_sets(draw: st.DrawFn) -> tuple[RuleSet, list[Version]]:
    """Up to two rules with up to two versions each, in the order of publication; in between maybe rules that look at
    their alerts, or silence them."""
    ruleset, versions = RuleSet(), []
    counts: dict[str, int] = {}
    group_bys: list[tuple[str, ...]] = []
    looking = draw(st.integers(0, 2)) == 2
    for _ in range(draw(st.integers(2, 4) if looking else st.integers(1, 3))):
        names = ("sum", "trust", "trust", "one", "two") if looking and group_bys else ("one", "two")
        rule_id = draw(st.sampled_from(names))
        counts[rule_id] = counts.get(rule_id, 0) + 1
        effective = 0 if counts[rule_id] == 1 else draw(st.integers(1, 60)) * SECOND
        of_group = draw(st.sampled_from(group_bys)) if looking and group_bys else None
        naming = ("one", "two", "one", "tag:a", "tag:b") if rule_id == "sum" else ()
        allowing = ("one", "two", "sum", "tag:a", "tag:b", "*", "*") if rule_id == "trust" else ()
        drawn = rules(rule_id, effective=effective, naming=naming, of_group=of_group, allowing=allowing)
        written, version = draw(drawn)
        group_bys.append(version.group_by)
        version.version = counts[rule_id]
        versions.append(version)
        ruleset = ruleset.publish(parse_rule(written, STREAMS), 0, 0)
    return ruleset, versions


# Events

_MOST = 10**18 - 1  # of the units of a decimal with 18 digits


def _decimals(places: int) -> st.SearchStrategy[Decimal | None]:
    units = st.none() | st.integers(-300, 300) | st.integers(-_MOST, _MOST) | st.sampled_from([_MOST, -_MOST])
    return units.map(lambda n: None if n is None else Decimal(n).scaleb(-places))


_DOUBLES = (0.1, -1.5, 1e16, 2.5, 1e-9, -0.0, 0.0, 5e-324, -1e140, 1.7e308, -1.7e308)
# Equal ones, and those whose squares a double does not hold.
_SPREADS = (1703.91, 1703.91, 1703.91, 1703.92, 1e-160, 3e-160, 1e160, 3e160)
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "who": st.sampled_from(["x", "x", "x", "y", None]),
    "place": st.sampled_from(["a", "a", "b", "b", "", "où donc, en vérité?", None]),
    "amount": st.sampled_from([None, *range(-4, 4)]).map(lambda n: None if n is None else Decimal(n * 75) / 100)
    | st.integers(-300, 300).map(lambda cents: Decimal(cents) / 100),
    "large": _decimals(3),
    "fraction": _decimals(18),
    "whole": _decimals(0),
    "number": st.sampled_from([None, 0, 1, 1, 1, 2, 2, -1, -2, 2**62, 2**63 - 1, -(2**63)]),
    "ratio": st.sampled_from([None, *_DOUBLES, *_SPREADS]),
    "flag": st.sampled_from([True, True, False, None]),
    "seen": st.sampled_from([None, 0, 0, SECOND, 5 * SECOND + 1, -1, MIN_TIMESTAMP, MAX_TIMESTAMP]),
}


@functools.cache
def _values(kinds: tuple[tuple[str, str], ...]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({name: _VALUES[name] for name, _ in kinds})


@st.composite
def event_values(draw: st.DrawFn, kinds: tuple[tuple[str, str], ...]) -> st.SearchStrategy[dict[str, Any]]:
    """Values of one history's events, whose doubles are so few that some windows hold equal ones only."""
    doubles = _VALUES["ratio"] | st.floats(allow_nan=False, allow_infinity=False)
    few = draw(st.lists(doubles, min_size=1, max_size=3))
    return st.fixed_dictionaries(
        {name: st.sampled_from(few) if kind == "double" else _VALUES[name] for name, kind in kinds}
    )


@functools.cache
def _delays(most: int, skew: int) -> st.SearchStrategy[int]:
    """How long after an event it arrives, in µs: mostly whole seconds, sometimes a microsecond more or less."""
    seconds = [0, 0, 1, 2, 5, 10, 11, 30, 61]
    wanted = [*(n * SECOND for n in [0, 0, 0, 0, *seconds]), *(n * SECOND + d for n in seconds for d in (-1, 1))]
    wanted += [most, -skew]
    return st.sampled_from(sorted((n for n in wanted if -skew <= n <= most), key=abs))


_IDS = st.sampled_from(("e", "e", "e", "ü", "an-id-of-more-than-sixteen-bytes-"))


@st.composite
def event(
    draw: st.DrawFn,
    stream: Stream,
    arrival: int,
    made: list[Event],
    *,
    most: int,
    conflicting: bool = False,
    number: int | None = None,
    values: st.SearchStrategy[dict[str, Any]] | None = None,
) -> Event:
    """An event that arrives then, at most so long after it happened (µs); now and then one of `made` again.

    conflicting: or another event under the id of one of them. number: how many events there are already. values: of its
    fields beside id and time.
    """
    number = len(made) if number is None else number
    repeated = draw(st.sampled_from(made)) if made and draw(st.integers(0, 9)) == 9 else None
    if repeated is not None and not (conflicting and draw(st.booleans())):
        return {**repeated, "arrival": arrival}
    name = f"{draw(_IDS)}{draw(st.integers(0, 99)):02d}-{number}" if repeated is None else repeated[stream.event_id]
    at = arrival - draw(_delays(most, stream.max_future_skew))
    own = draw(_values(kinds_of(stream)) if values is None else values)
    return {stream.event_id: name, stream.event_time: at, **own, "arrival": arrival}


_STEPS = st.sampled_from((0, 0, 1, 1, 2, 5))


@st.composite
def events(draw: st.DrawFn, *, lateness: bool, most: int = 25) -> list[Event]:
    """Events in the order of arrival, with disorder, equal times, NULLs and repeated ids."""
    arrival = 300 * SECOND
    made: list[Event] = []
    for _ in range(draw(st.integers(0, most))):
        arrival += draw(_STEPS) * SECOND
        made.append(draw(event(STREAM, arrival, made, most=3 * LATENESS if lateness else LATENESS)))
    return made


def table(made: list[Event], stream: Stream = STREAM) -> pa.Table:
    """The events as the engine takes them."""
    columns = {name: pa.array([e[name] for e in made], kind.arrow) for name, kind in stream.fields.items()}
    columns["arrival_time"] = pa.array([e["arrival"] for e in made], pa.int64()).cast(pa.timestamp("us", "UTC"))
    return pa.table(columns)


def setting(stream: Stream, *, truth: bool = False) -> Setting:
    """What the reference needs to know of a stream. truth: as if nothing were late."""
    return Setting(
        stream.event_id,
        stream.event_time,
        None if truth else stream.allowed_lateness,
        stream.max_future_skew,
        stream.tiebreaker,
    )


SETTING = setting(STREAM)
TRUTH = setting(STREAM, truth=True)
