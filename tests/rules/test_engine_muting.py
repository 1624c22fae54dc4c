"""Which alerts are muted (S10.4): a chain after any changes is what the reference makes of the alerts that stand."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from nightjar.rules.engine import Engine
from nightjar.rules.engine.ledger import LEDGER_SCHEMA, completed
from nightjar.rules.engine.muting import Chain, muted_among, place_of
from nightjar.rules.model import parse_rule
from nightjar.rules.streams import load_streams
from nightjar.rules.versions import RuleSet
from tests.support.reference import muted

STREAMS = load_streams()
MINUTE = 60_000_000
DAY = 24 * 60 * MINUTE
RULE = {"id": "r", "stream": "transactions", "group_by": ["customer_id"], "when": "amount > 10", "mute": "30m"}
RULES = RuleSet.of([parse_rule(RULE, STREAMS)], 0)

ALERTS = st.lists(st.tuples(st.integers(0, 60), st.sampled_from("abcdef")), max_size=40, unique=True)


@given(ALERTS, st.lists(st.integers(0, 100), max_size=40), st.integers(0, 20), st.integers(1, 6))
def test_a_chain_is_what_the_alerts_that_stand_give(
    alerts: list[tuple[int, str]], turns: list[int], mute: int, together: int
) -> None:
    """Whatever came and went, several at a time; what has changed is named, and nothing else."""
    chain, present = Chain(mute), set[tuple[int, str]]()
    before = set[Any]()
    for number in range(0, len(turns) if alerts else 0, together):
        turned = {alerts[turn % len(alerts)] for turn in turns[number : number + together]}
        coming, going = turned - present, turned & present
        present ^= turned
        changed = chain.change([place_of(*alert) for alert in coming], [place_of(*alert) for alert in going])
        order = sorted(present)
        expected = muted({("r", 1): mute}, [(("r", 1), "", time, name) for time, name in order])
        got = {at for at, alert in enumerate(order) if chain.muted(place_of(*alert))}
        assert got == expected
        unmuted = {place_of(*alert) for at, alert in enumerate(order) if at not in expected}
        assert changed == unmuted ^ before
        before = unmuted


@given(
    st.lists(
        st.tuples(
            st.sampled_from("rs"),
            st.integers(1, 2),
            st.sampled_from(["{}", "{1}"]),
            st.integers(0, 300),
            st.integers(0, 2),
            st.sampled_from("ab"),
        ),
        max_size=40,
        unique=True,
    ),
    st.sampled_from((7, 2, 1000)),
)
def test_a_table_of_alerts_is_muted_as_the_reference_says(rows: list[Any], part: int) -> None:
    """Rules, versions, groups and dates have nothing to do with each other, nor what allow rules silence: one in `part`
    minutes."""
    mutes = {("r", 1): 30 * MINUTE, ("r", 2): 1, ("s", 1): 3 * MINUTE}
    about = [
        ((rule, version), group, DAY * date + minute * 5 * MINUTE, name)
        for rule, version, group, minute, date, name in rows
    ]
    table = pa.table(
        {
            "rule_id": pa.array([version[0] for version, *_ in about], pa.string()),
            "rule_version": pa.array([version[1] for version, *_ in about], pa.int64()),
            "group": pa.array([group for _, group, _, _ in about], pa.string()),
            "event_time": pa.array([time for *_, time, _ in about], pa.int64()).cast(pa.timestamp("us", "UTC")),
            "event_id": pa.array([name for *_, name in about], pa.string()),
            "measures": pa.array(
                ["{}" if minute % part else '{"allowed_by":"trust"}' for _, _, _, minute, _, _ in rows], pa.string()
            ),
        }
    )
    got = {at for at, is_muted in enumerate(muted_among(table, mutes).to_pylist()) if is_muted}
    silenced = [minute % part == 0 for _, _, _, minute, _, _ in rows]
    others = [at for at, is_silenced in enumerate(silenced) if not is_silenced]
    expected = {others[place] for place in muted(mutes, [about[at] for at in others])}
    assert got == expected | {at for at, is_silenced in enumerate(silenced) if is_silenced}


def payments(*paid: tuple[int, int]) -> pa.Table:
    """Ann's payments: the minute, and the minute of arrival."""
    return pa.table(
        {
            "transaction_id": [f"t{minute}" for minute, _ in paid],
            "event_time": pa.array([minute * MINUTE for minute, _ in paid]).cast(pa.timestamp("us", "UTC")),
            "customer_id": ["ann"] * len(paid),
            "terminal_id": ["m1"] * len(paid),
            "amount": pa.array([Decimal(20)] * len(paid), pa.decimal128(12, 2)),
            "arrival_time": pa.array([minute * MINUTE for _, minute in paid]).cast(pa.timestamp("us", "UTC")),
        }
    )


def flags(alerts: pa.Table) -> list[tuple[str, int, bool]]:
    """Event, revision and whether it is muted."""
    columns = (alerts.column(name).to_pylist() for name in ("event_id", "revision", "muted"))
    return list(zip(*columns, strict=True))


def test_an_alert_outlives_its_event_as_long_as_it_mutes() -> None:
    """Its event is settled and evicted at once, as the rule has no window; what is kept has the alert, and no more."""
    engine = Engine(STREAMS["transactions"], RULES)
    assert flags(engine.advance(payments((0, 0)), 25 * MINUTE).alerts) == [("t0", 1, False)]
    kept = engine.snapshot()
    assert kept.announcements.num_rows == 1
    later = Engine(STREAMS["transactions"], RULES)
    later.restore([kept])
    later.resume(engine.position)
    both = later.advance(payments((30, 30), (31, 31)), 41 * MINUTE).alerts
    assert flags(both) == [("t30", 1, True), ("t31", 1, False)]
    assert later.snapshot().announcements.column("event_id").to_pylist() == ["t31"]


def test_announcements_of_an_earlier_release_mute_nothing() -> None:
    """Its state has no such columns."""
    made = Engine(STREAMS["transactions"], RULES).advance(payments((0, 0))).delta.announcements
    old = completed(made.drop_columns(["muted", "mute"]))
    assert old.schema == LEDGER_SCHEMA
    assert (old.column("muted").to_pylist(), old.column("mute").to_pylist()) == ([False], [0])
