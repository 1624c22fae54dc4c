"""Why stream and truth differ, one small history for each cause; what no cause explains is a defect and says so."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from backfill.causes import Cause, Published, Witness
from backfill.scope import GroupBy
from rules.engine.records import alert_id
from rules.model import parse_rule
from rules.streams import load_streams
from rules.versions import RuleSet

STREAMS = load_streams()
STREAM = STREAMS["transactions"]
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
HOUR = 3_600_000_000
RULE = {
    "id": "burst", "stream": "transactions", "group_by": ["customer_id"],
    "measures": {"payments": {"count": "*", "over": "1h"}}, "when": "payments >= 2",
}  # fmt: skip
ONE_VERSION = RuleSet.of([parse_rule(RULE, STREAMS)], 0)
AT_NOON = int(NOON.timestamp()) * 1_000_000
LONG_KNOWN = Published(AT_NOON - HOUR, AT_NOON - 24 * HOUR)


def event(number: int, minute: float, arrives: float | None = None, amount: int = 1) -> dict[str, Any]:
    """A payment of Ann's at a minute after noon."""
    return {
        "transaction_id": f"t{number}", "event_time": NOON + timedelta(minutes=minute), "customer_id": "ann",
        "terminal_id": "m1", "amount": Decimal(amount),
        "arrival_time": NOON + timedelta(minutes=minute if arrives is None else arrives),
        "partition": 0, "offset": number,
    }  # fmt: skip


def cause(
    events: list[dict[str, Any]],
    about: int,
    said: int | None,
    true: int | None,
    published: Published | dict[tuple[str, int], Published] = LONG_KNOWN,
    consumed: int = 100,
    conflicting: frozenset[str] = frozenset(),
    versions: RuleSet = ONE_VERSION,
) -> Cause:
    """Of the difference at event `about`: the stream said this many payments, the truth has that many."""
    coordinates = [("arrival_time", pa.timestamp("us", "UTC")), ("partition", pa.int32()), ("offset", pa.int64())]
    table = pa.Table.from_pylist(events, pa.schema([*STREAM.schema, *coordinates]))
    witness = Witness(
        STREAM, versions, GroupBy(("customer_id",), HOUR), table,
        published={("burst", 1): published} if isinstance(published, Published) else published,
        consumed={0: consumed}, conflicting=conflicting,
    )  # fmt: skip
    of_event = next(e for e in events if e["transaction_id"] == f"t{about}")
    event_time = int(of_event["event_time"].timestamp() * 1_000_000)
    return witness.cause(
        {
            "alert_id": alert_id("burst", 1, f"t{about}", event_time), "rule_id": "burst", "rule_version": 1,
            "group": '{"customer_id":"ann"}', "event_id": f"t{about}",
            "event_time": event_time,
            "outcome": "missed" if said is None else "retracted" if true is None else "revised",
            "stream_measures": None if said is None else json.dumps({"payments": said}, separators=(",", ":")),
        }
    )  # fmt: skip


LATE = [event(1, 1), event(3, 5), event(2, 2, arrives=13)]


def test_a_late_event_in_the_window_is_proven_by_enacting_the_stream_again() -> None:
    """t2 came too late for t3, which therefore counted two of three."""
    assert cause(LATE, 3, said=2, true=3) is Cause.LATE_EVENT


def test_a_late_event_itself_is_not_evaluated_by_the_stream() -> None:
    """The truth has an alert there, the stream none."""
    assert cause(LATE, 2, said=None, true=2) is Cause.LATE_EVENT


def test_a_late_event_explains_only_what_it_leads_to() -> None:
    """That the stream said one of three is not what a late event makes of it: a defect."""
    assert cause(LATE, 3, said=1, true=3) is Cause.UNEXPLAINED
    assert cause([event(1, 1), event(3, 5)], 3, said=None, true=2) is Cause.UNEXPLAINED


def test_what_the_stream_has_not_read_it_cannot_have_said() -> None:
    """The event's own offset, or that of one in its window, lies behind what the stream had read."""
    assert cause([event(1, 1), event(3, 5)], 3, said=None, true=2, consumed=3) is Cause.STREAM_DOWN
    unread = [event(1, 1), event(3, 5), event(9, 3, arrives=6)]
    assert cause(unread, 3, said=2, true=3, consumed=5) is Cause.STREAM_DOWN


def test_a_rule_that_came_after_the_event() -> None:
    """It was to hold from before its own publication."""
    after = Published(AT_NOON + 10 * 60_000_000, AT_NOON - 24 * HOUR)
    assert cause([event(1, 1), event(3, 5)], 3, said=None, true=2, published=after) is Cause.RULE_PROPAGATION


@pytest.mark.parametrize(("published", "expected"), [(10, Cause.RULE_PROPAGATION), (2, Cause.UNEXPLAINED)])
def test_a_version_that_took_the_place_of_another_in_the_past(published: int, expected: Cause) -> None:
    """Version 1 had alerted when version 2, as of a time before the event, came; had that been there, it had not."""
    strict = RULE | {"when": "payments >= 9", "effective": NOON.isoformat()}
    versions = RuleSet.of([parse_rule(RULE, STREAMS), parse_rule(strict, STREAMS)], 0)
    known = {("burst", 1): LONG_KNOWN, ("burst", 2): replace(LONG_KNOWN, arrival=AT_NOON + published * 60_000_000)}
    assert cause([event(1, 1), event(3, 5)], 3, said=2, true=None, published=known, versions=versions) is expected


@pytest.mark.parametrize(("since", "expected"), [(3, Cause.COLD_START), (0, Cause.UNEXPLAINED)])
def test_a_rule_whose_history_was_not_there(since: int, expected: Cause) -> None:
    """t1 lies before what the stream still had when the rule came; had it been there, nothing would explain it."""
    cold = Published(AT_NOON, AT_NOON + since * 60_000_000)
    assert cause([event(1, 1), event(3, 5)], 3, said=None, true=2, published=cold) is expected


def test_an_id_that_names_two_events() -> None:
    """Its second record went to another bucket, which could not know of the first."""
    assert cause([event(1, 1), event(3, 5)], 3, said=None, true=2, conflicting=frozenset({"t1"})) is (
        Cause.DUPLICATE_CONFLICT
    )
