"""Why stream and truth differ, one small history for each cause; what no cause explains is a defect and says so."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar.backfill.inputs.histories import VersionHistory
from nightjar.backfill.inputs.scope import GroupBy
from nightjar.backfill.reconcile.causes import CONFLICTS, CauseFinder
from nightjar.contracts.reconciliation import Cause
from nightjar.rules.alert_ids import alert_id
from nightjar.rules.engine.store import ARRIVAL, LATE
from nightjar.rules.engine.table_rows import Change, TableRows
from nightjar.rules.model import parse_rule
from nightjar.rules.streams import Stream, load_streams
from nightjar.rules.timestamps import microseconds
from nightjar.rules.types import STRING
from nightjar.rules.versions import RuleSet

STREAMS = load_streams()
STREAM = STREAMS["transactions"]
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
HOUR = 3_600_000_000
RULE = {
    "id": "burst",
    "stream": "transactions",
    "group_by": ["customer_id"],
    "measures": {"payments": {"count": "*", "over": "1h"}},
    "when": "payments >= 2",
}
ONE_VERSION = RuleSet.of([parse_rule(RULE, STREAMS)], 0)
AT_NOON = int(NOON.timestamp()) * 1_000_000
LONG_KNOWN = VersionHistory(AT_NOON - HOUR, AT_NOON - 24 * HOUR)


def event(number: int, minute: float, arrives: float | None = None, amount: int = 1) -> dict[str, Any]:
    """A payment of Ann's at a minute after noon."""
    return {
        "transaction_id": f"t{number}",
        "event_time": NOON + timedelta(minutes=minute),
        "customer_id": "ann",
        "terminal_id": "m1",
        "amount": Decimal(amount),
        "arrival_time": NOON + timedelta(minutes=minute if arrives is None else arrives),
        "partition": 0,
        "offset": number,
    }


def reported(event: dict[str, Any]) -> bool:
    """Whether a stream that allows 10 minutes reports the event as late."""
    return bool(event["arrival_time"] - event["event_time"] > timedelta(minutes=10))


def finder(
    events: list[dict[str, Any]],
    late: Callable[[dict[str, Any]], bool] = reported,
    published: dict[tuple[str, int], VersionHistory] | None = None,
    consumed: int = 100,
    began: int = 0,
    conflicting: frozenset[str] = frozenset(),
    versions: RuleSet = ONE_VERSION,
    stream: Stream = STREAM,
    clock: int | None = None,
    lateness: tuple[int, ...] = (),
    tables: TableRows | None = None,
) -> CauseFinder:
    """Of Ann's payments."""
    rows = [{**e, LATE: late(e), CONFLICTS: e["transaction_id"] in conflicting} for e in events]
    coordinates = [(ARRIVAL, pa.timestamp("us", "UTC")), ("partition", pa.int32()), ("offset", pa.int64())]
    flags = [(LATE, pa.bool_()), (CONFLICTS, pa.bool_())]
    table = pa.Table.from_pylist(rows, pa.schema([*STREAM.schema, *coordinates, *flags]))
    known = {("burst", 1): LONG_KNOWN} if published is None else published
    group_by = GroupBy(("customer_id",), HOUR)
    return CauseFinder(
        stream,
        versions,
        group_by,
        table,
        published=known,
        consumed={0: consumed, 1: consumed},
        began={0: began},
        clock=clock,
        lateness=lateness,
        tables=tables,
    )


def cause(events: list[dict[str, Any]], about: int, emitted: int | None, true: int | None, **known: Any) -> Cause:
    """Of the difference at event `about`: the stream's alert counts `emitted` payments, the truth `true`."""
    if isinstance(known.get("published"), VersionHistory):
        known["published"] = {("burst", 1): known["published"]}
    of_event = next(e for e in events if e["transaction_id"] == f"t{about}")
    row = {
        "alert_id": alert_id("burst", 1, f"t{about}", microseconds(of_event["event_time"]), '{"customer_id":"ann"}'),
        "rule_id": "burst",
        "rule_version": 1,
        "group": '{"customer_id":"ann"}',
        "event_id": f"t{about}",
        "event_time": of_event["event_time"],
        "outcome": "missed" if emitted is None else "retracted" if true is None else "revised",
        "stream_measures": None if emitted is None else json.dumps({"payments": emitted}, separators=(",", ":")),
        "measures": None if true is None else json.dumps({"payments": true}, separators=(",", ":")),
        "stream_muted": None if emitted is None else False,
        "muted": None if true is None else False,
    }
    return Cause(finder(events, **known).causes(pl.DataFrame([row])).get_column("cause").item())


LATE_BETWEEN = [event(1, 1), event(3, 5), event(2, 2, arrives=13)]


def test_a_late_event_in_the_window_is_proven_by_replaying_the_stream() -> None:
    """t2 came too late for t3, which therefore counted two of three."""
    assert cause(LATE_BETWEEN, 3, emitted=2, true=3) is Cause.LATE_EVENT


def test_a_late_event_itself_is_not_evaluated_by_the_stream() -> None:
    """The truth has an alert there, the stream none."""
    assert cause(LATE_BETWEEN, 2, emitted=None, true=2) is Cause.LATE_EVENT


def test_a_late_event_explains_only_what_it_leads_to() -> None:
    """A stream that counted one of three has a defect: a late event does not lead to that."""
    assert cause(LATE_BETWEEN, 3, emitted=1, true=3) is Cause.UNEXPLAINED
    assert cause([event(1, 1), event(3, 5)], 3, emitted=None, true=2) is Cause.UNEXPLAINED


def test_what_the_stream_has_not_read_it_cannot_count() -> None:
    """The event's own offset, or that of one in its window, lies behind what the stream had read."""
    assert cause([event(1, 1), event(3, 5)], 3, emitted=None, true=2, consumed=3) is Cause.STREAM_DOWN
    unread = [event(1, 1), event(3, 5), event(9, 3, arrives=6)]
    assert cause(unread, 3, emitted=2, true=3, consumed=5) is Cause.STREAM_DOWN


def test_a_rule_that_came_after_the_event() -> None:
    """It was to hold from before its own publication."""
    after = VersionHistory(AT_NOON + 10 * 60_000_000, AT_NOON - 24 * HOUR)
    assert cause([event(1, 1), event(3, 5)], 3, emitted=None, true=2, published=after) is Cause.RULE_PROPAGATION


@pytest.mark.parametrize(
    ("seconds", "expected"), [(1, "reference_changed"), (0, "reference_changed"), (-1, "unexplained")]
)
def test_a_list_that_changed_with_an_event_or_after_it(seconds: int, expected: str) -> None:
    """Of what arrived together nobody can say which the stream read first; what was there before it knew."""
    stream = replace(STREAM, tables={"watched": STRING})
    rule = {**RULE, "measures": {"payments": {"count": "*", "over": "1h", "where": "customer_id IN watched"}}}
    versions = RuleSet.of([parse_rule({**rule, "when": "payments >= 1"}, {stream.name: stream})], 0)
    tables = TableRows(stream.tables)
    arrival = AT_NOON + 60_000_000 + 1_000_000 * seconds
    tables.add([Change(0, arrival, "watched", ["ann"], is_set=True, valid_from=AT_NOON)], 1)
    known: dict[str, Any] = {"stream": stream, "versions": versions, "tables": tables}
    assert cause([event(1, 1)], 1, emitted=None, true=1, **known) is Cause(expected)


def test_a_rule_and_an_event_of_the_same_arrival() -> None:
    """Which of them came first, nobody can say: the rule may have come after the event."""
    together = VersionHistory(AT_NOON + 5 * 60_000_000, AT_NOON - 24 * HOUR)
    assert cause([event(1, 1), event(3, 5)], 3, emitted=None, true=2, published=together) is Cause.RULE_PROPAGATION


def test_a_rule_of_the_same_arrival_whose_history_was_not_there() -> None:
    """That it came after the event is possible; that it lacked t1 is certain."""
    together = VersionHistory(AT_NOON + 5 * 60_000_000, AT_NOON + 2 * 60_000_000)
    assert cause([event(1, 1), event(3, 5)], 3, emitted=1, true=2, published=together) is Cause.COLD_START


@pytest.mark.parametrize(("published", "expected"), [(10, Cause.RULE_PROPAGATION), (2, Cause.UNEXPLAINED)])
def test_a_version_that_took_the_place_of_another_in_the_past(published: int, expected: Cause) -> None:
    """Version 1 had alerted when version 2, as of a time before the event, came; had that been there, it had not."""
    strict = RULE | {"when": "payments >= 9", "effective": NOON.isoformat()}
    versions = RuleSet.of([parse_rule(RULE, STREAMS), parse_rule(strict, STREAMS)], 0)
    known = {("burst", 1): LONG_KNOWN, ("burst", 2): replace(LONG_KNOWN, arrival=AT_NOON + published * 60_000_000)}
    assert cause([event(1, 1), event(3, 5)], 3, emitted=2, true=None, published=known, versions=versions) is expected


@pytest.mark.parametrize(("since", "expected"), [(3, Cause.COLD_START), (0, Cause.UNEXPLAINED)])
def test_a_rule_whose_history_was_not_there(since: int, expected: Cause) -> None:
    """t1 lies before what the stream still had when the rule came; had it been there, nothing would explain it."""
    cold = VersionHistory(AT_NOON, AT_NOON + since * 60_000_000)
    assert cause([event(1, 1), event(3, 5)], 3, emitted=None, true=2, published=cold) is expected


@pytest.mark.parametrize(
    ("emitted", "expected"), [(None, Cause.LATE_EVENT), (2, Cause.LATE_EVENT), (4, Cause.UNEXPLAINED)]
)
def test_late_events_that_were_read_when_the_alert_was_settled(emitted: int | None, expected: Cause) -> None:
    """t2 and t3 had arrived before t5, in another partition, which the stream read behind: it counted none, or one."""
    elsewhere = [event(number, number, arrives=13 + number / 10) | {"partition": 1} for number in (2, 3)]
    assert cause([*elsewhere, event(5, 5, arrives=14)], 5, emitted=emitted, true=3) is expected


def test_what_was_read_before_the_state_began() -> None:
    """A new checkpoint reads what Kafka still has: t1 is in the lake and was never in this state."""
    assert cause([event(1, 1), event(3, 5)], 3, emitted=None, true=2, began=2) is Cause.COLD_START
    assert cause([event(1, 1), event(3, 5)], 3, emitted=None, true=2, began=1) is Cause.UNEXPLAINED


@pytest.mark.parametrize(("allowed", "expected"), [(5, Cause.LATE_EVENT)])
def test_lateness_is_what_the_stream_reported(allowed: int, expected: Cause) -> None:
    """t2 came six minutes late, which the stream, by its declaration of then, took for late."""
    events = [event(1, 1), event(3, 5), event(2, 2, arrives=8)]
    today = replace(STREAM, allowed_lateness=allowed * 60_000_000)
    by_then = {"late": lambda e: e["transaction_id"] == "t2", "stream": today}
    assert cause(events, 3, emitted=2, true=3, **by_then) is expected
    assert cause(events, 2, emitted=None, true=2, **by_then) is expected
    assert cause(events, 3, emitted=1, true=3, **by_then) is Cause.UNEXPLAINED


@pytest.mark.parametrize(
    ("lateness", "expected"),
    [((HOUR,), Cause.SETTINGS_CHANGED), ((), Cause.UNEXPLAINED), ((HOUR // 5,), Cause.UNEXPLAINED)],
)
def test_what_counted_in_steps_by_an_earlier_setting(lateness: tuple[int, ...], expected: Cause) -> None:
    """S14.4: t2 counted as long as an hour was allowed, and would not today; t4 counted by neither."""
    stepped = RULE | {"measures": {"payments": {"count": "*", "over": "1h", "resolution": "10m"}}}
    events = [event(1, 1), event(2, 2, arrives=42), event(3, 45), event(4, 3, arrives=133)]
    known = {"versions": RuleSet.of([parse_rule(stepped, STREAMS)], 0), "late": lambda e: e["transaction_id"] == "t4"}
    assert cause(events, 3, emitted=3, true=4, lateness=lateness, **known) is expected


@pytest.mark.parametrize(("lateness", "expected"), [((HOUR,), Cause.SETTINGS_CHANGED), ((), Cause.UNEXPLAINED)])
def test_what_counts_in_no_step_since_the_setting_changed(lateness: tuple[int, ...], expected: Cause) -> None:
    """S14.4: t2 came when an hour was allowed, so that nothing reported it as late; t3 came after a restart."""
    stepped = RULE | {"measures": {"payments": {"count": "*", "over": "1h", "resolution": "10m"}}}
    events = [event(1, 1), event(2, 2, arrives=42), event(3, 45)]
    known = {"versions": RuleSet.of([parse_rule(stepped, STREAMS)], 0), "late": lambda _: False}
    assert cause(events, 3, emitted=2, true=3, lateness=lateness, **known) is expected


@pytest.mark.parametrize(("emitted", "expected"), [(2, Cause.SETTINGS_CHANGED), (3, Cause.UNEXPLAINED)])
def test_what_was_announced_in_the_order_without_a_tie_breaker(emitted: int, expected: Cause) -> None:
    """S1.3: by the hashes of their ids t1 is second; by the amount, which has been declared since, it is the first."""
    events = [event(1, 1, amount=1), event(2, 1, amount=2)]
    ordered = replace(STREAM, tiebreaker="amount")
    assert cause(events, 1, emitted=emitted, true=None, stream=ordered) is expected
    assert cause(events, 1, emitted=emitted, true=None) is Cause.UNEXPLAINED


EVENTS = st.lists(st.tuples(st.integers(0, 200), st.sampled_from(["ann", "bob", "eve"])), min_size=1, max_size=25)


@given(EVENTS, st.integers(0, 25))
def test_each_difference_is_about_its_own_window(minutes: list[tuple[int, str]], consumed: int) -> None:
    """What was not read counts where it is in the group's last hour, and nowhere else."""
    events = [event(at, minute) | {"customer_id": who} for at, (minute, who) in enumerate(minutes)]
    rows = [
        {
            "alert_id": str(at),
            "rule_id": "burst",
            "rule_version": 1,
            "group": f'{{"customer_id":"{who}"}}',
            "event_id": f"t{at}",
            "event_time": events[at]["event_time"],
            "outcome": "retracted",
            "stream_measures": '{"payments":0}',
            "measures": None,
            "stream_muted": False,
            "muted": None,
        }
        for at, (_, who) in enumerate(minutes)
    ]
    found = finder(events, consumed=consumed).causes(pl.DataFrame(rows)).get_column("cause").to_list()
    assert found == [
        "stream_down"
        if any(o >= consumed and w == who and minute - 60 <= m <= minute for o, (m, w) in enumerate(minutes))
        else "unexplained"
        for minute, who in minutes
    ]


def test_an_id_that_names_two_events() -> None:
    """Its second record went to another bucket, which could not know of the first."""
    assert cause([event(1, 1), event(3, 5)], 3, emitted=None, true=2, conflicting=frozenset({"t1"})) is (
        Cause.DUPLICATE_CONFLICT
    )


def test_what_only_mutes_otherwise_has_the_cause_of_what_mutes() -> None:
    """The last alert before it in its chain that one side lacks; where there is none, a defect."""
    events = [*LATE_BETWEEN, event(4, 30), event(5, 20)]

    def row(number: int, outcome: str, **changed: Any) -> dict[str, Any]:
        values = '{"payments":3}'
        return {
            "alert_id": f"a{number}",
            "rule_id": "burst",
            "rule_version": 1,
            "group": '{"customer_id":"ann"}',
            "event_id": f"t{number}",
            "event_time": NOON + timedelta(minutes=number),
            "outcome": outcome,
            "stream_measures": None if outcome == "missed" else values,
            "measures": values,
            "stream_muted": None if outcome == "missed" else False,
            "muted": True,
        } | changed

    def causes(*rows: dict[str, Any]) -> list[str]:
        found = finder(events).causes(pl.DataFrame(rows))
        return [cause for _, cause in sorted(found.iter_rows())]

    late = row(2, "missed")
    assert causes(late, row(4, "revised")) == ["late_event", "late_event"]
    assert causes(row(1, "revised"), late) == ["unexplained", "late_event"], "what comes after it mutes nothing"
    for other in ({"group": '{"customer_id":"bob"}'}, {"rule_version": 2}, {"rule_id": "other"}):
        assert causes(late, row(4, "revised", **other))[1] == "unexplained"
    tomorrow = NOON + timedelta(days=1)
    assert causes(late, row(4, "revised", event_time=tomorrow))[1] == "unexplained"


WAITING = {**RULE, "when": "payments >= 1", "unless": {"within": "30m", "where": "amount > 1000"}}


@pytest.mark.parametrize(
    ("clock", "expected"), [(None, Cause.STREAM_DOWN), (30, Cause.STREAM_DOWN), (31, Cause.UNEXPLAINED)]
)
def test_an_alert_that_the_streams_clock_has_not_made_due_is_left_to_the_stream(
    clock: int | None, expected: Cause
) -> None:
    """S19: had its clock passed the 30 minutes that the rule waits, the alert would be there."""
    versions = RuleSet.of([parse_rule(WAITING, STREAMS)], 0)
    at = None if clock is None else AT_NOON + clock * HOUR // 60
    assert cause([event(1, 0)], 1, emitted=None, true=1, versions=versions, clock=at) is expected


def test_what_a_rule_waits_for_came_late() -> None:
    """S19: the event after the alert's own is in its window."""
    versions = RuleSet.of([parse_rule(WAITING, STREAMS)], 0)
    events = [event(1, 0), event(2, 10, arrives=50, amount=2000)]
    due = {"due": "2026-01-05T12:30:00.000000Z"}
    found = finder(events, versions=versions, clock=AT_NOON + HOUR)
    row = {
        "alert_id": alert_id("burst", 1, "t1", AT_NOON, '{"customer_id":"ann"}'),
        "rule_id": "burst",
        "rule_version": 1,
        "group": '{"customer_id":"ann"}',
        "event_id": "t1",
        "event_time": events[0]["event_time"],
        "outcome": "retracted",
        "stream_measures": json.dumps({"payments": 1, **due}, separators=(",", ":")),
        "measures": None,
        "stream_muted": False,
        "muted": None,
    }
    assert found.causes(pl.DataFrame([row])).get_column("cause").to_list() == ["late_event"]
