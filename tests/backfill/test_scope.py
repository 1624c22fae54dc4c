"""Which spans of which groups a run judges, held against a slow model of a few lines."""

import json
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar.backfill.inputs.context import RunInputs
from nightjar.backfill.inputs.histories import VersionHistory, histories
from nightjar.backfill.inputs.scope import (
    GROUP,
    HI,
    LO,
    TARGET,
    GroupBy,
    events_of,
    group_bys,
    group_texts,
    merged,
    spans_of,
    touched_groups,
    touched_spans,
)
from nightjar.backfill.lateness import Lateness
from nightjar.backfill.staging import Notes
from nightjar.contracts.rule_status import answer_record
from nightjar.rules.model import Rule, State, parse_rule
from nightjar.rules.publishing import Answer, Status
from nightjar.rules.rulebook import ShuffleKey
from nightjar.rules.streams import load_streams
from nightjar.rules.types import DOUBLE
from nightjar.rules.versions import Primed, RuleSet, RuleVersion
from tests.support.answers import answered
from tests.support.payments import AT_NOON, DAY, HOUR, MINUTE, NOON, REQUEST, SCHEMA, STREAM, config_of, payment

GROUP_BY = GroupBy(("customer_id",), 2 * HOUR)

HOURS = st.lists(st.tuples(st.integers(-60, 60), st.sampled_from(["ann", "bob"])), max_size=20)


def frame(events: list[tuple[int, str]]) -> pl.DataFrame:
    """Payments at hours from noon."""
    rows = [payment(f"t{at}", NOON + timedelta(hours=hour), customer_id=who) for at, (hour, who) in enumerate(events)]
    return pl.DataFrame(pa.Table.from_pylist(rows, SCHEMA))


@given(HOURS, HOURS, st.sampled_from([GROUP_BY, GroupBy((), 2 * HOUR), GroupBy(("customer_id",), 0)]))
def test_a_run_judges_what_its_events_can_change(
    old: list[tuple[int, str]], new: list[tuple[int, str]], group_by: GroupBy
) -> None:
    """Each event within a window after one of the day's, with all that its own window holds, and none of them twice."""
    day, events = frame(new), frame([*new, *old])
    spans = touched_spans(day.lazy(), STREAM, group_by, REQUEST).collect()
    groups = touched_groups(spans, STREAM, group_by, REQUEST)
    for _, own in groups.sort(LO).group_by(GROUP):
        assert (own.get_column(LO).slice(1) > own.get_column(HI).head(-1)).all(), "no alert is counted twice"
    found = events_of(events.sort("event_time").lazy(), groups.lazy().drop(GROUP), STREAM, group_by).collect()
    assert found.get_column("transaction_id").is_unique().all(), "no event is read twice"
    reach, end = group_by.reach // HOUR, 60
    whole = [*new, *old]
    known = dict(found.select("transaction_id", TARGET).iter_rows())
    for number, (hour, who) in enumerate(whole):
        mine = [h for h, w in new if w == who or not group_by.fields]
        if hour < end and any(h <= hour <= h + reach for h in mine):
            assert known[f"t{number}"], "what can have changed is judged"
            for other, (before, w) in enumerate(whole):
                if (w == who or not group_by.fields) and hour - reach <= before <= hour:
                    assert f"t{other}" in known, "what a judged event's window holds is there"
        elif known.get(f"t{number}"):
            near = [h for h in mine if abs(hour - h) <= 24 + 2 * reach]
            assert near, "what is judged beside is not far away"


@given(HOURS, HOURS, st.sampled_from([0, 2, 30]))
def test_where_alerts_mute_each_other_whole_dates_are_judged(
    old: list[tuple[int, str]], new: list[tuple[int, str]], hours: int
) -> None:
    """The dates on which the day's events can change an alert, with all that windows there hold, and none twice."""
    group_by = GroupBy(("customer_id",), hours * HOUR, mutes=True)
    spans = touched_spans(frame(new).lazy(), STREAM, group_by, REQUEST).collect()
    groups = touched_groups(spans, STREAM, group_by, REQUEST).lazy().drop(GROUP)
    events = frame([*new, *old]).sort("event_time").lazy()
    found = events_of(events, groups, STREAM, group_by).collect()
    assert found.get_column("transaction_id").is_unique().all(), "no event is read twice"
    known = dict(found.select("transaction_id", TARGET).iter_rows())
    last = (REQUEST.end - AT_NOON) // HOUR - 1
    dates = {(who, date) for h, who in new for date in range((h + 12) // 24, (h + hours + 12) // 24 + 1)}
    for number, (hour, who) in enumerate([*new, *old]):
        if hour <= last and (who, (hour + 12) // 24) in dates:
            assert known[f"t{number}"], "all of the date is judged"
        near = any(who == other and date * 24 - 12 - hours <= hour < date * 24 + 12 for other, date in dates)
        if near and hour <= last:
            assert f"t{number}" in known, "what the windows of its first events hold is there"
        assert near or f"t{number}" not in known, "nothing else is read"


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 10))), st.integers(1, 5))
def test_merged_spans_hold_the_same_and_are_few(drawn: list[tuple[int, int]], most: int) -> None:
    """In their order, apart from each other, and where there are too many the nearest have become one."""
    spans = [(lo, lo + length) for lo, length in drawn]
    found = merged(spans, most)
    assert len(found) <= most
    assert all(one[1] < other[0] for one, other in pairwise(found))
    assert all(any(lo <= a and b <= hi for lo, hi in found) for a, b in spans)
    if len(merged(spans, 1000)) <= most:
        assert {at for lo, hi in found for at in range(lo, hi + 1)} == {
            at for lo, hi in spans for at in range(lo, hi + 1)
        }


def test_a_group_of_a_pending_alert_is_touched_where_the_alert_is() -> None:
    """Its text says which it is, whatever the types of its fields."""
    stream = load_streams()["payments"]
    fields = tuple(name for name, kind in stream.fields.items() if name != stream.event_id)[:3]
    values = {
        "string": '"x"',
        "int64": "5",
        "double": "2.5",
        "boolean": "true",
        "timestamp": '"2026-01-05T12:00:00.000000Z"',
    }
    kinds = {name: stream.fields[name].kind.value for name in fields}
    text = "{" + ",".join(f'"{n}":{values.get(k, chr(34) + "7.00" + chr(34))}' for n, k in kinds.items()) + "}"
    (row,) = touched_groups(
        spans_of([text], [AT_NOON], stream, GroupBy(fields, HOUR)), stream, GroupBy(fields, HOUR), REQUEST
    ).to_dicts()
    assert (row[GROUP], row[LO], row[HI]) == (text, AT_NOON, AT_NOON + HOUR)


def test_both_zeros_are_one_group() -> None:
    """The engine announces alerts of -0.0 under 0.0; a run has to find them."""
    stream = replace(STREAM, fields={**STREAM.fields, "score": DOUBLE})
    texts = group_texts(pa.table({"score": [-0.0, 0.0]}), stream, GroupBy(("score",), HOUR))
    assert texts == ['{"score":0.0}', '{"score":0.0}']


STREAMS = load_streams()


def rule(name: str, over: str = "1h", state: str = "active", group_by: str = "customer_id") -> Rule:
    """A rule with one window."""
    written = {
        "id": name,
        "stream": "transactions",
        "group_by": [group_by],
        "when": "n >= 2",
        "state": state,
        "measures": {"n": {"count": "*", "over": over}},
    }
    return parse_rule(written, STREAMS)


def test_the_group_by_of_a_displaced_version_is_judged_where_it_was_in_force() -> None:
    """At 12:00 the rule was regrouped as of 10:00: of the two hours before there are alerts by both fields."""
    versions = (
        RuleVersion(rule("r"), 1, AT_NOON - 5 * HOUR),
        RuleVersion(rule("r", group_by="terminal_id"), 2, AT_NOON - 2 * HOUR),
    )
    published = {("r", 1): VersionHistory(AT_NOON - 5 * HOUR, 0), ("r", 2): VersionHistory(AT_NOON, 0)}

    def fields(since: int, until: int) -> list[tuple[str, ...]]:
        return [of.fields for of in group_bys(versions, published, since, until, {}, MINUTE)]

    assert fields(AT_NOON - HOUR, AT_NOON) == [("customer_id",), ("terminal_id",)]
    assert fields(AT_NOON + HOUR, AT_NOON + DAY) == [("terminal_id",)]
    assert fields(AT_NOON - 4 * HOUR, AT_NOON - 3 * HOUR) == [("customer_id",)]
    assert fields(AT_NOON - 9 * HOUR, AT_NOON - 8 * HOUR) == []
    paused = (versions[0], replace(versions[1], rule=rule("r", state="paused")))
    assert [of.fields for of in group_bys(paused, published, AT_NOON, AT_NOON, {}, MINUTE)] == [("customer_id",)]


LIVES = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from(["1h", "5h", "30h"]),
        st.sampled_from([*State]),
        st.integers(0, 20),
        st.integers(-10, 10),
    ),
    min_size=1,
    max_size=8,
)


@given(LIVES, st.sampled_from([0, HOUR, 3 * HOUR]))
def test_the_history_of_a_version_begins_at_the_horizon(
    drawn: list[tuple[str, str, State, int, int]], lateness: int
) -> None:
    """As an engine has it that asks at every moment which versions some unsettled event can still see."""
    published, arrivals, now = RuleSet(), {}, AT_NOON
    for name, over, state, later, effective in drawn:
        now += later * HOUR
        known = rule(name, over, state.value)
        number = 1 + len(published.of_rule(name))
        published = RuleSet((*published.versions, RuleVersion(known, number, now + effective * HOUR)))
        arrivals[name, number] = now
    found = histories(published.versions, arrivals, Lateness([], lateness))
    horizon = AT_NOON - (1 << 60)
    moments = sorted({AT_NOON + hour * HOUR for hour in range(200)} & set(range(AT_NOON, now + 1, HOUR)))
    for moment in moments:
        there = [v for v in published.versions if arrivals[v.rule.id, v.version] < moment]
        horizon = max(horizon, moment - lateness - reach(there, moment - lateness))
        for name, arrival in arrivals.items():
            if arrival == moment:
                assert found[name] == VersionHistory(arrival, horizon)


def test_a_primed_version_has_the_history_that_its_answer_says() -> None:
    """S5.7: and so have those after it; those before it found less."""
    wide, narrow = rule("wide", "30h"), rule("narrow", "1h")
    versions = [RuleVersion(narrow, 1, AT_NOON), RuleVersion(wide, 1, AT_NOON), RuleVersion(narrow, 2, AT_NOON)]
    arrivals = {("narrow", 1): AT_NOON, ("wide", 1): AT_NOON + 50 * HOUR, ("narrow", 2): AT_NOON + 60 * HOUR}

    def since(primed: dict[tuple[str, int], int]) -> list[int]:
        found = histories(versions, arrivals, Lateness([], 0), primed)
        return [(found[name].history_since - AT_NOON) // HOUR for name in arrivals]

    assert since({}) == [0, 49, 49]
    assert since({("wide", 1): AT_NOON + 20 * HOUR}) == [0, 20, 30]


@pytest.mark.parametrize(("then", "since"), [(10 * MINUTE, -70), (None, -30 * 60 - 60)])
def test_a_history_is_as_short_as_allowed_lateness_was(tmp_path: Path, then: int | None, since: int) -> None:
    """By the answers, whatever is declared today; a later raise brings nothing back. Earlier releases do not say it."""
    streams = {STREAM.name: replace(STREAM, allowed_lateness=30 * HOUR)}
    notes = []
    for at, (name, over, hours) in enumerate((("a", "1h", 0), ("b", "30h", 9), ("c", "30h", 10))):
        status = Status(Answer.ACCEPTED, name, 1, AT_NOON + hours * HOUR)
        lateness = 30 * HOUR if then is not None and name == "c" else then
        key = ShuffleKey(STREAM.name, "customer_id")
        _, value = answer_record(status, f"rules-0-{at}", rule(name, over), key, lateness)
        notes.append((at, AT_NOON + hours * HOUR, json.dumps(value)))
    config = config_of(tmp_path)
    config = replace(config, lake=replace(config.lake, streams=streams))
    found = RunInputs(config, REQUEST, Notes(AT_NOON, 0, {}, notes)).rules.published
    assert found["b", 1].history_since == AT_NOON + 9 * HOUR + since * MINUTE
    if then is not None:  # b may have been retained for since it came, by the lateness of then or of now
        assert found["c", 1].history_since == found["b", 1].history_since


def test_a_shuffle_key_that_was_primed_has_history(tmp_path: Path) -> None:
    """From the event time on that the answer says; one that was not, of what cannot have come before that answer."""
    written = {
        "id": "r",
        "stream": "transactions",
        "group_by": ["amount"],
        "when": "n > 1",
        "measures": {"n": {"count": "*", "over": "30h"}},
    }
    (accepted,) = answered({STREAM.name: STREAM}, written)
    waits = json.dumps(json.loads(accepted.value) | {"effective": None})

    def history(primed: Primed | None) -> VersionHistory:
        status = Status(Answer.ACTIVE, "r", 1, AT_NOON, primed=primed)
        active = json.dumps(answer_record(status)[1])
        notes = Notes(AT_NOON + HOUR, 0, {}, [(0, AT_NOON - HOUR, waits), (1, AT_NOON, active)])
        return RunInputs(config_of(tmp_path), REQUEST, notes).rules.published["r", 1]

    assert history(None) == VersionHistory(AT_NOON, AT_NOON + STREAM.max_future_skew + 1)
    assert history(Primed(AT_NOON - 30 * HOUR, "abc")) == VersionHistory(AT_NOON, AT_NOON - 30 * HOUR)


def test_a_shuffle_key_that_was_made_again_has_the_history_since_then(tmp_path: Path) -> None:
    """S5.8: its rules were retired, and came back when the job had dropped the key with its state. Of two that waited
    together the first begins that, also for what comes between; versions that came while the key was in use have what
    the others had retained."""
    key = ShuffleKey("transactions", "amount")
    notes: list[tuple[int, int, str]] = []

    def answer(status: Status, hours: int, state: str | None = None) -> None:
        made = None if state is None else rule(str(status.rule_id), group_by="amount", state=state)
        about = None if made is None else f"rules-0-{len(notes)}"
        _, value = answer_record(status, about, made, key if made else None)
        notes.append((len(notes), AT_NOON + hours * HOUR, json.dumps(value)))

    def taken_in(name: str, number: int, hours: int, primed: Primed | None = None) -> None:
        answer(Status(Answer.ACTIVE, name, number, AT_NOON + hours * HOUR, primed=primed), hours)

    def since() -> dict[str, int]:
        given = Notes(AT_NOON, 0, {}, notes)
        found = RunInputs(config_of(tmp_path), REQUEST, given).rules.published
        return {f"{name} {number}": (of.history_since - AT_NOON) // HOUR for (name, number), of in found.items()}

    answer(Status(Answer.ACCEPTED, "r", 1, None), 0, "active")
    taken_in("r", 1, 1)
    answer(Status(Answer.ACCEPTED, "s", 1, AT_NOON + 9 * HOUR), 9, "active")
    assert since() == {"r 1": 1, "s 1": 7}
    answer(Status(Answer.ACCEPTED, "r", 2, AT_NOON + 10 * HOUR), 10, "retired")
    answer(Status(Answer.ACCEPTED, "s", 2, AT_NOON + 10 * HOUR), 10, "retired")
    answer(Status(Answer.ACCEPTED, "r", 3, None), 40, "active")
    answer(Status(Answer.ACCEPTED, "s", 3, None), 40, "active")
    answer(Status(Answer.ACCEPTED, "t", 1, AT_NOON + 40 * HOUR), 40, "active")
    taken_in("r", 3, 41)
    taken_in("s", 3, 42)
    again = since()
    assert again | {"r 1": 1, "s 1": 7, "r 3": 41, "s 3": 41, "t 1": 41} == again
    answer(Status(Answer.ACCEPTED, "t", 2, AT_NOON + 50 * HOUR), 50, "retired")
    answer(Status(Answer.ACCEPTED, "r", 4, AT_NOON + 50 * HOUR), 50, "retired")
    answer(Status(Answer.ACCEPTED, "s", 4, AT_NOON + 50 * HOUR), 50, "retired")
    answer(Status(Answer.ACCEPTED, "r", 5, None), 80, "active")
    taken_in("r", 5, 81, Primed(AT_NOON + 30 * HOUR, "abc"))
    answer(Status(Answer.ACCEPTED, "r", 6, AT_NOON + 90 * HOUR), 90, "active")
    assert since() == again | {"r 4": 48, "s 4": 48, "t 2": 48, "r 5": 30, "r 6": 88}


def reach(versions: list[RuleVersion], settled: int) -> int:
    """The widest window of versions that an event from `settled` on sees, of those that keep state."""
    needed = [
        version
        for at, version in enumerate(versions)
        if version.rule.state is not State.RETIRED
        and all(
            later.rule.id != version.rule.id or later.effective > max(version.effective, settled - 1)
            for later in versions[at + 1 :]
        )
    ]
    return max((measure.reach for version in needed for measure in version.rule.measures.values()), default=0)
