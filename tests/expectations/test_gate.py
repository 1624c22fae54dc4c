"""Each expectation holds of what is right, and is broken by one row that is not."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from nightjar.expectations import gate
from nightjar.expectations.findings import Checked, Finding, GateError, by_severity, refuse
from nightjar.expectations.measured import compared_or_why, counted, measured, summed
from nightjar.expectations.offsets import frame
from nightjar.expectations.suites import Suite, events_suite, offsets_suite, reconciliation_suite, violations_suite
from nightjar.expectations.topic import Gap
from nightjar.expectations.violation_checks import rechecked
from nightjar.rules.alert_ids import alert_id
from nightjar.rules.timestamps import microseconds
from tests.support.frames import DAY, EVENTS, NOON, RULES, STREAM, event, events, outcomes, truth, violations

pytestmark = pytest.mark.slow  # Great Expectations takes seconds to import

EVENTS_SUITE = events_suite(STREAM, EVENTS.columns)


def broken(checked: Checked) -> dict[str, int | None]:
    """The expectations that do not hold, and how many rows break each."""
    return {found.expectation: found.observed for found in checked.findings if not found.success}


def finding(checked: Checked, name: str) -> Finding:
    """The finding of that name."""
    (found,) = [found for found in checked.findings if found.expectation == name]
    return found


def checked_of(suite: Suite, rows: pl.DataFrame) -> Checked:
    """The gate's findings about the rows."""
    (checked,) = gate.check([(suite, measured(suite, rows))])
    return checked


def held_against_events(violations: pa.Table) -> pl.DataFrame:
    """The violations, rechecked on the clean events, of which one arrived twice."""
    again = event(4, amount=Decimal(999), offset=900, arrival_time=NOON + timedelta(days=1))
    rows = [*(row for row in map(event, range(40)) if row["rejected"] is None), again]
    arrived = pa.Table.from_pylist(rows, EVENTS.arrow)
    return pl.DataFrame(rechecked(violations, {STREAM.name: arrived}, {STREAM.name: STREAM}, RULES))


def test_what_is_right_passes() -> None:
    """Clean events, offsets, violations and outcomes: every expectation holds, and nothing is refused."""
    checked = [
        checked_of(EVENTS_SUITE, events()),
        checked_of(offsets_suite(STREAM.name), frame([])),
        checked_of(violations_suite(), held_against_events(violations())),
        checked_of(reconciliation_suite(6, 6), outcomes()),
    ]
    assert [broken(each) for each in checked] == [{}] * 4
    assert [found.problem for each in checked for found in each.findings if found.problem] == []
    refuse(checked)


def test_nothing_passes_too() -> None:
    """A day without records, violations and alerts is no failure."""
    assert broken(checked_of(EVENTS_SUITE, events().clear())) == {}
    assert broken(checked_of(violations_suite(), held_against_events(violations().slice(0, 0)))) == {}
    assert broken(checked_of(reconciliation_suite(0, 0), outcomes().clear())) == {}


def test_parts_are_as_good_as_the_whole() -> None:
    """Counted in parts, what single rows break is the same; only what is compared must come together."""
    spoiled = events({3: {"event_time": None}, 5: {"offset": -1}, 30: {"event_time": None}})
    whole = measured(EVENTS_SUITE, spoiled)
    parts = [counted(EVENTS_SUITE, spoiled.slice(start, 7)) for start in range(0, 40, 7)]
    compared = [compared_or_why(EVENTS_SUITE, each, spoiled) for each in EVENTS_SUITE.expectations if each.key]
    assert summed(EVENTS_SUITE, EVENTS.columns, pa.concat_tables([*parts, *compared])) == whole
    assert {found.expectation: found.observed for found in whole if found.observed} == {
        "event_time_given": 2,
        "arrival_known": 1,
    }


def test_each_expectation_on_events_can_break() -> None:
    """One spoiled record each; the amount's needs a column that is wider than declared."""
    spoiled = {
        1: {"transaction_id": ""},
        3: {"event_time": None},
        5: {"event_time": NOON + timedelta(minutes=6, microseconds=1)},
        7: {"event_time": datetime(1999, 12, 31, 23, 59, 59, tzinfo=UTC)},
        9: {"arrival_date": DAY + timedelta(days=1)},
        11: {"amount": Decimal("0.001")},
        13: {"offset": 105},
        15: {"transaction_id": "t17"},
        19: {"detail": None},
        21: {"rejected": "not_json", "detail": "no JSON", "original": b"{"},
    }
    gaps = frame(
        [
            Gap("transactions", 0, 5, 6, known=True, why="markers"),
            Gap("transactions", 0, 8, 9, known=False, why="a record"),
            Gap("transactions", 1, 1, 1),
        ],
    )
    checked = checked_of(EVENTS_SUITE, events(spoiled, wider=True))
    offsets = checked_of(offsets_suite(STREAM.name), gaps)
    assert broken(checked) == {
        "columns": 1,
        "event_id_given": 1,
        "event_time_given": 1,
        "event_time_within_skew": 1,
        "event_time_sane": 1,
        "rejected_explained": 1,
        "arrival_known": 1,
        "amount_in_precision": 1,
        "few_rejected": 3,
        "coordinates_unique": 1,
        "event_id_names_one_event": 1,
    }
    assert broken(checked).keys() == {found.expectation for found in checked.findings}
    assert finding(checked, "event_time_within_skew").examples == (
        {
            "partition": "1",
            "offset": "102",
            "arrival_time": "2026-01-05 12:05:00",
            "rejected": None,
            "detail": None,
            "transaction_id": "t5",
            "event_time": "2026-01-05 12:06:00.000001",
            "customer_id": "c2",
            "terminal_id": "m",
            "amount": "5.0000",
        },
    )
    assert finding(checked, "columns").examples == (
        {"column": "amount", "declared": "decimal(12,2)", "found": "decimal(20,4)"},
    )
    twice = finding(checked, "coordinates_unique").examples
    assert [(row["partition"], row["offset"], row["transaction_id"]) for row in twice] == [
        ("1", "105", "t11"),
        ("1", "105", "t13"),
    ]
    same_id = finding(checked, "event_id_names_one_event").examples
    assert [(row["transaction_id"], row["offset"]) for row in same_id] == [("t17", "107"), ("t17", "108")]
    assert next(iter(same_id[0])) == "transaction_id", "the key stands first"
    warned = {found.expectation for found in checked.findings if found.severity == "warning"}
    assert warned == {"event_time_sane", "few_rejected", "event_id_names_one_event"}
    assert broken(offsets) == {"nothing_lost": 1, "gaps_looked_into": 1}
    assert finding(offsets, "nothing_lost").examples[0]["first_missing"] == "8"


def test_each_expectation_on_violations_can_break() -> None:
    """One spoiled violation each; what is no JSON can be no true group or condition either."""
    rows = truth().to_pylist()

    times = {row["event_id"]: microseconds(row["event_time"]) for row in rows}
    groups = {row["event_id"]: row["group"] for row in rows}
    times["nobody"], groups["nobody"] = times[rows[1]["event_id"]], rows[1]["group"]

    def id_of(event: str, version: int = 1, group: str | None = None) -> str:
        return alert_id("spent", version, event, times[event], group or groups[event])

    def grouped(row: int, group: str) -> dict[str, str]:
        return {"group": group, "alert_id": id_of(rows[row]["event_id"], group=group)}

    spoiled: dict[int, dict[str, Any]] = {
        0: {"alert_id": "0" * 32},
        1: {"event_id": "nobody", "alert_id": id_of("nobody")},
        2: grouped(2, '{"customer_id":"nobody"}'),
        3: {"rule_version": 2, "alert_id": id_of(rows[3]["event_id"], 2)},
        4: {"measures": '{"spent":"25.00"}'},
        5: grouped(5, '{"customer_id"'),
        6: {"measures": "25.01"},
        7: rows[8],
        9: {"stream": "unheard-of"},
    }
    checked = checked_of(violations_suite(), held_against_events(violations(spoiled)))
    assert broken(checked) == {
        "alert_id_true": 2,
        "event_exists": 2,
        "group_true": 3,
        "version_effective": 2,
        "condition_true": 2,
        "group_json": 1,
        "measures_json": 1,
        "alert_id_unique": 1,
    }
    assert broken(checked).keys() | {"columns"} == {found.expectation for found in checked.findings}
    twice = finding(checked, "alert_id_unique").examples
    assert [(row["alert_id"], row["event_id"]) for row in twice] == [(rows[8]["alert_id"], rows[8]["event_id"])] * 2


def test_each_expectation_on_outcomes_can_break() -> None:
    """One spoiled outcome each; an outcome that is none adds up to nothing."""
    spoiled: dict[int, dict[str, Any]] = {
        0: {"cause": "late_event"},
        1: {"outcome": "lost", "cause": "cold_start"},
        4: {"cause": "bad luck"},
        5: {"cause": "unexplained"},
        6: {"alert_id": "a7"},
    }
    checked = checked_of(reconciliation_suite(6, 6), outcomes(spoiled).drop("event_time"))
    assert broken(checked) == {
        "columns": 1,
        "outcome_known": 1,
        "cause_where_differing": 1,
        "cause_known": 1,
        "explained": 1,
        "violations_add_up": 1,
        "alerts_add_up": 1,
        "alert_id_unique": 1,
    }
    assert broken(checked).keys() == {found.expectation for found in checked.findings}
    (example,) = finding(checked, "explained").examples
    assert example["alert_id"] == "a5"


def test_what_cannot_be_checked_is_not_taken_for_right() -> None:
    """Without a column that expectations read, they are broken, and the first finding names it."""
    checked = checked_of(EVENTS_SUITE, events().drop("arrival_time"))
    assert finding(checked, "columns").examples == ({"column": "arrival_time", "declared": "timestamp", "found": None},)
    skew = finding(checked, "event_time_within_skew")
    assert (skew.success, skew.observed) == (False, None)
    assert "arrival_time" in skew.problem
    with pytest.raises(GateError, match="could not be checked"):
        refuse([checked])


def test_findings_outlive_the_process() -> None:
    """What was checked is JSON and back, and refuses in the same words."""
    checked = checked_of(reconciliation_suite(6, 7), outcomes({5: {"cause": "bad luck"}}))
    again = Checked.from_json(json.loads(json.dumps(checked.as_json())))
    assert again == checked
    with pytest.raises(GateError) as refusal:
        refuse([again], remedy="Look there")
    assert str(refusal.value) == (
        "the gate: 2 critical expectations do not hold\n"
        "- reconciliation, cause_known (a cause is one of late_event, reference_changed, cold_start, "
        "rule_propagation, stream_down, settings_changed, duplicate_conflict, forgotten, "
        "unexplained): violated by 1 row\n"
        "    alert_id=a5, rule_id=r, rule_version=1, stream=transactions, group={}, event_id=t5, "
        "event_time=2026-01-05 12:00:00, outcome=retracted, cause=bad luck\n"
        "- reconciliation, alerts_add_up (matched, retracted and revised alerts add up to the alerts of the "
        "stream (7)): violated by 1 row\n"
        "Look there"
    )


def test_warnings_are_reported_and_refuse_nothing() -> None:
    """Only what is critical stops publication."""
    found = {"suite": "s", "sentence": "it holds", "success": False, "observed": 1}
    checked = Checked("s", (Finding(expectation="e", severity="warning", **found),), {})
    assert checked.success
    refuse([checked])
    with pytest.raises(GateError, match="1 critical expectation does not hold\n- s, e"):
        refuse([Checked("s", (Finding(expectation="e", severity="critical", **found),), {})])


def test_findings_are_counted_by_severity() -> None:
    """Held and broken ones, of all suites; a severity without any is not named."""

    def of(severity: str, held: int, broken: int) -> Checked:
        results = [True] * held + [False] * broken
        return Checked(
            "s", tuple(Finding("s", "e", "it is", severity, success=each, observed=0) for each in results), {}
        )

    assert by_severity([of("critical", 2, 0), of("warning", 1, 2), of("critical", 1, 0)]) == {
        "critical": {"held": 3, "broken": 0},
        "warning": {"held": 1, "broken": 2},
    }
    assert by_severity([]) == {}


def test_an_event_cannot_forge_lines_of_a_log() -> None:
    """An event's content is shown with its line breaks and escape sequences escaped."""
    forged = {"customer_id": "ann\n2026-11-22T00:31:00Z INFO all expectations hold\x1b[2K", "amount": None}
    found = Finding("events", "sane", "it is sane", "critical", success=False, observed=1, examples=(forged,))
    assert str(GateError([found], remedy="Look there")) == (
        "the gate: 1 critical expectation does not hold\n"
        "- events, sane (it is sane): violated by 1 row\n"
        "    customer_id=ann\\n2026-11-22T00:31:00Z INFO all expectations hold\\x1b[2K, amount=NULL\n"
        "Look there"
    )


def test_an_unexplained_difference_is_a_warning_and_a_withdrawn_alert_adds_up() -> None:
    """The gate does not stop a day for either; corrections of unexplained ones are held back elsewhere."""
    checked = checked_of(reconciliation_suite(6, 6), outcomes({5: {"cause": "unexplained"}}))
    assert broken(checked) == {"explained": 1}
    refuse([checked])
    gone = outcomes({5: {"outcome": "withdrawn", "cause": None}})
    assert broken(checked_of(reconciliation_suite(6, 5), gone)) == {}


def test_keys_whose_rows_are_not_found_stay_as_they_are() -> None:
    """A masked key has no row that shows it; of many rows with one key two are shown."""
    rows = events({number: {"transaction_id": "t17"} for number in (15, 19, 23)})
    (found,) = [each for each in measured(EVENTS_SUITE, rows) if each.expectation == "event_id_names_one_event"]
    assert [row["transaction_id"] for row in found.examples] == ["t17", "t17"]
    secret = replace(EVENTS_SUITE, masked=frozenset({"transaction_id"}))
    (found,) = [each for each in measured(secret, rows) if each.expectation == "event_id_names_one_event"]
    (key,) = found.examples
    assert key.keys() == {"transaction_id", "$rows"}
    assert "t17" not in str(key)
