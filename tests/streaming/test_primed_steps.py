"""S14.3, S8.6: measures with a resolution that are primed are those of an engine that had them all along."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar.rules.engine import Delta, Engine
from nightjar.rules.engine.ledger import NO_ANNOUNCEMENTS
from nightjar.rules.engine.past import Past, PastFolder
from nightjar.rules.engine.store import LONG_AGO
from nightjar.rules.model import parse_rule
from nightjar.rules.streams import streams_from_mapping
from nightjar.rules.versions import NOT_YET, RuleSet, RuleVersion
from nightjar.streaming.buckets.primed_state import numbered
from nightjar.streaming.priming.coverage import Coverage, Since, needs_of
from nightjar.streaming.state import statelog
from nightjar.streaming.state.statelog import Head
from tests.support.evicting import evicting_early

SECOND = 1_000_000
START = 1_000_000_000 * SECOND
FIELDS = {"id": "string", "at": "timestamp", "who": "string", "amount": "int64"}
STREAMS = streams_from_mapping(
    {
        "s": {
            "event_id": "id",
            "event_time": "at",
            "entities": ["who"],
            "allowed_lateness": "10s",
            "max_future_skew": "0s",
            "fields": FIELDS,
        }
    },
    "tests",
)
STREAM = STREAMS["s"]
SCHEMA = STREAM.schema.append(pa.field("arrival_time", pa.timestamp("us", "UTC")))
Row = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def _evicting_early() -> Iterator[None]:
    with evicting_early(floor=4, block=2):
        yield


def rule(name: str, **measures: dict[str, str]) -> Any:
    """A rule that announces its measures at every event."""
    written = {"id": name, "stream": "s", "group_by": ["who"], "when": "TRUE", "measures": measures}
    return parse_rule(written, STREAMS)


def counted(over: str, resolution: str | None = None, **function: str) -> dict[str, str]:
    """A measure."""
    return {**(function or {"count": "*"}), "over": over} | ({} if resolution is None else {"resolution": resolution})


# There all along: single events of a short window, and steps of a minute.
THERE = {
    "narrow": rule("narrow", n=counted("20s")),
    "steps": rule("steps", n=counted("60s", "7s"), s=counted("60s", "7s", sum="amount")),
}
# What needs more: the same steps for longer, others, single events, and both.
LATER = {
    "longer": rule("later", n=counted("200s", "7s")),
    "others": rule(
        "later",
        top=counted("100s", "20s", max="amount"),
        s=counted("200s", "20s", sum="amount"),
        d=counted("90s", "7s", stddev="amount"),
    ),
    "single": rule("later", n=counted("150s"), top=counted("150s", max="amount")),
    "both": rule("later", n=counted("150s"), s=counted("200s", "7s", sum="amount")),
}


def rules(there: list[str], later: str, effective: int | None) -> RuleSet:
    """The rules that are there, and a later one: from a second on, not yet at all (None)."""
    since = NOT_YET if effective is None else START + effective * SECOND
    versions = [RuleVersion(THERE[name], 1, 0) for name in there]
    return RuleSet((*versions, RuleVersion(LATER[later], 1, since)))


def table(events: list[Row]) -> pa.Table:
    """Events as an engine takes them; their times are seconds after the start."""
    rows = [row | {name: START + row[name] * SECOND for name in ("at", "arrival_time")} for row in events]
    return pa.Table.from_pylist(rows, SCHEMA)


def arrivals(drawn: list[tuple[int, int, str, int]]) -> list[Row]:
    """The events drawn, in order of arrival."""
    found, now = [], 0
    for number, (since, late, who, amount) in enumerate(drawn):
        now += since
        found.append({"id": f"e{number}", "at": now - late, "arrival_time": now, "who": who, "amount": amount})
    return found


events_of = st.lists(
    st.tuples(
        st.integers(1, 6),  # seconds since the last arrival
        # lateness: of most none, of some more than is allowed, of some more than counts for measures with a resolution
        st.sampled_from([0, 0, 0, 2, 5, 11, 15, 20, 21, 40, 80, 150]),
        st.sampled_from("ab"),
        st.integers(-9, 9),
    ),
    min_size=20,
    max_size=90,
)


class Exported:
    """What an export has of the events so far, and what is missed from then on."""

    def __init__(self, engine: Engine, ruleset: RuleSet, events: list[Row]) -> None:
        position = engine.position
        head = Head(
            0, horizon=position.horizon, settled=position.settled, folds=dict(position.held), folded=position.folded
        )
        coverage = Coverage((head,), {}, position.settled)
        waiting = [version for version in ruleset.versions if version.effective == NOT_YET]
        self.since = Since.of_all(needs_of(version, STREAM).since(engine.settled) for version in waiting)
        (lack,) = coverage.lacking(self.since)
        history = table(events)
        times = history.column("at").cast(pa.int64()).to_numpy()
        unread = times < LONG_AGO
        rows = history.filter(pa.array(lack.rows(times, unread)))
        self.history = Delta(numbered(rows, STREAM, -rows.num_rows), NO_ANNOUNCEMENTS)
        folder = PastFolder(STREAM, [*lack.steps], 2 * STREAM.allowed_lateness)
        folded = lack.folded(times, unread)
        for at in (0, 7):  # in two parts
            part = slice(at, at + 7 if at == 0 else None)
            if history[part].num_rows and folded:
                folder.add(history[part], {fold: wanted[part] for fold, wanted in folded.items()})
        spans = {fold.name: (begin, min(lack.complete[fold], lack.until)) for fold, begin in lack.steps.items()}
        self.past = Past("history", spans, folder.folded(), lack.until)
        self.missed: list[Row] = []


@given(
    events_of,
    st.sampled_from([["narrow"], ["steps"], ["narrow", "steps"]]),
    st.sampled_from(sorted(LATER)),
    st.tuples(st.floats(0.2, 0.7), st.floats(0, 1), st.floats(0, 1)),
    st.sampled_from(["", "restored", "merged"]),
)
def test_primed_steps_are_those_of_rules_that_had_always_been_there(
    drawn: list[tuple[int, int, str, int]], there: list[str], later: str, moments: tuple[float, float, float], lost: str
) -> None:
    """Whatever of them is folded already, however late events were; also where the state is read back later."""
    events, (published, exported, primed) = arrivals(drawn), moments
    knows = int(len(events) * published)
    exports = knows + int((len(events) - knows) * exported * 0.6)
    primes = exports + int((len(events) - exports) * primed * 0.6)
    effective = events[primes - 1]["arrival_time"] + 1
    final = rules(there, later, effective)
    always, engine = Engine(STREAM, final), Engine(STREAM, RuleSet(final.versions[:-1]))
    deltas: list[Delta] = []
    for number, event in enumerate(events):
        now = START + event["arrival_time"] * SECOND
        if number == knows:
            engine.set_rules(rules(there, later, None))
        if number == exports:
            export = Exported(engine, rules(there, later, None), events[:number])
        if number == primes:
            missed = engine.prime(export.history, table(export.missed), export.since.rows, export.past)
            deltas += [export.history, missed]
            engine.set_rules(final)
        if number == primes + 5 and lost:
            again = Engine(STREAM, final)
            stored = [statelog.read(statelog.write(delta)) for delta in deltas]
            again.restore([statelog.concat(stored, "at", engine.position)] if lost == "merged" else stored)
            again.resume(engine.position)
            engine = again
        before = engine.horizon
        found = engine.advance(table([event]), now)
        deltas.append(found.delta)
        if exports <= number < primes and START + event["at"] * SECOND < before:
            export.missed.append(event)
        wanted = always.advance(table([event]), now)
        if number >= primes:
            assert found.alerts.to_pylist() == wanted.alerts.to_pylist()


@pytest.mark.parametrize("lateness", [0, 10 * SECOND])
def test_a_version_of_steps_alone_needs_them_whatever_the_allowed_lateness(lateness: int) -> None:
    """It would else take effect without them."""
    stream = replace(STREAM, allowed_lateness=lateness)
    written = {"id": "one", "stream": "s", "group_by": ["who"]}
    measures = {"n": {"count": "*", "over": "8s", "resolution": "1s"}}
    for rest, needs in (({"when": "n > 1", "measures": measures}, True), ({"when": "who = 'x'"}, False)):
        (version,) = RuleSet.of([parse_rule(written | rest, {"s": stream})], 0).versions
        assert bool(needs_of(version, stream)) is needs
