"""Outcomes and corrections as functions of tables: after the corrections the alerts are right."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from nightjar.backfill.reconcile.reconciliation import (
    allowed_by_of,
    corrections,
    latest_revisions,
    reconcile,
    well_formed,
    with_overflow,
    with_withdrawn,
)
from nightjar.contracts.alerts import RECORD_SCHEMA
from nightjar.rules.truth import VIOLATION_SCHEMA

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
NO_CAUSES = pl.DataFrame(schema={"alert_id": pl.String, "cause": pl.String})
Row = dict[str, Any]


# As a group or measures are written, and with nested values.
OBJECTS = st.dictionaries(
    st.text(max_size=3),
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5) | st.just([1]),
).map(lambda values: json.dumps(values, ensure_ascii=False, separators=(",", ":")))


def content(number: int, spent: int) -> Row:
    """What a violation at event `number` says."""
    return {
        "alert_id": f"a{number}",
        "rule_id": "r",
        "rule_version": 1,
        "rule_state": "active",
        "stream": "transactions",
        "group": '{"customer_id":"ann"}',
        "event_id": f"e{number}",
        "event_time": NOON + timedelta(seconds=number),
        "measures": json.dumps({"spent": spent}),
        "severity": "high",
        "text": f"{spent} spent",
        "muted": False,
    }


def record(number: int, spent: int, revision: int = 1, **changed: Any) -> Row:
    """An alert record of the stream, unless it says otherwise."""
    return {
        **content(number, spent),
        "revision": revision,
        "kind": "alert",
        "source": "stream",
        "cause": None,
    } | changed


def truth(*rows: Row) -> pl.DataFrame:
    """Violations."""
    return pl.DataFrame(pa.Table.from_pylist(list(rows), VIOLATION_SCHEMA))


def alerts(*rows: Row) -> pl.DataFrame:
    """Alert records."""
    return pl.DataFrame(pa.Table.from_pylist(list(rows), RECORD_SCHEMA))


def outcomes(true: pl.DataFrame, announced: pl.DataFrame) -> dict[str, str]:
    """Outcome by alert id."""
    return dict(reconcile(true, announced).select("alert_id", "outcome").iter_rows())


def test_each_alert_has_the_outcome_it_should() -> None:
    """Matched, missed, retracted, revised; what the stream took back itself is no alert."""
    true = truth(content(1, 10), content(2, 20), content(3, 30), content(6, 60))
    announced = alerts(
        record(1, 10),
        record(3, 31),
        record(4, 40),
        record(5, 50),
        record(5, 50, 2, kind="retraction"),
        record(6, 60),
        record(6, 60, 2, kind="retraction"),
        record(6, 60, 3),
    )
    assert outcomes(true, announced) == {
        "a1": "matched",
        "a2": "missed",
        "a3": "revised",
        "a4": "retracted",
        "a6": "matched",
    }


def test_of_a_verdict_values_are_no_difference() -> None:
    """Nor are they corrected; whether it holds is, with the true values."""
    true = truth(content(1, 10), content(2, 20))
    announced = alerts(record(1, 11), record(3, 30))
    verdict_only = {("r", 1)}
    found = dict(reconcile(true, announced, verdict_only).select("alert_id", "outcome").iter_rows())
    assert found == {"a1": "matched", "a2": "missed", "a3": "retracted"}
    published = corrections(true, announced, NO_CAUSES, verdict_only).select("alert_id", "kind", "text").rows()
    assert published == [("a2", "alert", "20 spent"), ("a3", "retraction", "30 spent")]
    assert outcomes(true, announced)["a1"] == "revised"
    assert reconcile(true, announced, {("r", 11), ("r1", 1)}).row(0, named=True)["outcome"] == "revised"


def test_whether_it_is_muted_is_content() -> None:
    """Whatever its values: it is revised, and corrected."""
    true, announced = truth(content(1, 10) | {"muted": True}), alerts(record(1, 10))
    for verdict_only in ((), {("r", 1)}):
        (outcome,) = reconcile(true, announced, verdict_only).to_dicts()
        assert (outcome["outcome"], outcome["stream_muted"], outcome["muted"]) == ("revised", False, True)
        published = corrections(true, announced, NO_CAUSES, verdict_only).select("revision", "kind", "muted").rows()
        assert published == [(2, "alert", True)]


def test_what_silences_it_is_content_of_a_verdict_too() -> None:
    """S24.4: a muted alert still restricts, one that an allow rule silences does not. A text like it is none."""
    measures = ['{"n": 3, "allowed_by": "trust"}', '{"n":3}', '{"n":3,"said":"\\"allowed_by\\":\\"trust\\""}']
    announced = alerts(record(1, 10, measures=measures[0]) | {"muted": True})
    for written, outcome in zip(measures, ("matched", "revised", "revised"), strict=True):
        true = truth(content(1, 10) | {"measures": written, "muted": True})
        found = reconcile(true, announced, {("r", 1)})
        assert found.get_column("outcome").to_list() == [outcome]
        assert found.select(allowed_by_of("stream_measures")).item() == "trust"


def test_how_a_value_is_written_is_no_difference() -> None:
    """Spaces in JSON and the spelling of a double mean nothing."""
    true = truth(content(1, 10) | {"measures": '{"usual": 1e16, "n": 3}'})
    announced = alerts(record(1, 10, measures='{"usual":10000000000000000.0,"n":3}'))
    assert outcomes(true, announced) == {"a1": "matched"}


def test_a_correction_is_not_the_streams() -> None:
    """The outcome stays what it was after the backfill has corrected it, and nothing more is published."""
    true = truth(content(1, 10))
    announced = alerts(record(1, 11), record(1, 10, 2, source="backfill", cause="late_event"))
    assert outcomes(true, announced) == {"a1": "revised"}
    assert corrections(true, announced, NO_CAUSES).height == 0


def test_a_retraction_repeats_what_it_withdraws() -> None:
    """So that a consumer knows what it was about."""
    (row,) = corrections(truth(), alerts(record(4, 40)), NO_CAUSES).to_dicts()
    assert (row["kind"], row["revision"], row["text"]) == ("retraction", 2, "40 spent")


ANNOUNCED = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.integers(0, 2),
        st.sampled_from(["alert", "retraction"]),
        st.sampled_from(["stream", "backfill"]),
    ),
    max_size=12,
)
TRUE = st.dictionaries(st.integers(0, 4), st.integers(0, 2))


def history(announced: list[tuple[int, int, str, str]]) -> pl.DataFrame:
    """Records with revisions in their order."""
    revisions: dict[int, int] = {}
    rows = []
    for number, spent, kind, source in announced:
        revisions[number] = revisions.get(number, 0) + 1
        rows.append(record(number, spent, revisions[number], kind=kind, source=source))
    return alerts(*rows)


@given(ANNOUNCED, TRUE)
def test_after_the_corrections_the_latest_revisions_are_the_truth(announced: list[Any], true: dict[int, int]) -> None:
    """S10: who keeps the highest revision of each id has the truth; and a second run has nothing to add."""
    known, right = history(announced), truth(*(content(number, spent) for number, spent in true.items()))
    new = corrections(right, known, NO_CAUSES).with_columns(pl.lit("backfill").alias("source"))
    after = pl.concat([known, new.select(known.columns)])
    assert after.select("alert_id", "revision").is_duplicated().sum() == 0
    unretracted = latest_revisions(after).filter(pl.col("kind") == "alert")
    columns = ["alert_id", "text"]
    assert sorted(unretracted.select(columns).rows()) == sorted(right.select(columns).rows())
    assert corrections(right, after, NO_CAUSES).height == 0
    assert reconcile(right, after).equals(reconcile(right, known)), "outcomes are about the stream alone"


@given(ANNOUNCED, TRUE)
def test_outcomes_add_up(announced: list[Any], true: dict[int, int]) -> None:
    """Each violation and each alert of the stream that is not retracted is counted once."""
    known, right = history(announced), truth(*(content(number, spent) for number, spent in true.items()))
    found = list(outcomes(right, known).values())
    unretracted = latest_revisions(known.filter(pl.col("source") == "stream")).filter(pl.col("kind") == "alert").height
    assert len(found) - found.count("retracted") == right.height
    assert len(found) - found.count("missed") == unretracted


def test_of_equal_revisions_the_backfills_counts() -> None:
    """Whichever came first: the true values are announced, and nothing more is published."""
    both = [record(1, 11, 2), record(1, 10, 2, source="backfill", cause="late_event")]
    for announced in (alerts(record(1, 12), *both), alerts(*reversed(both), record(1, 12))):
        assert latest_revisions(announced)["text"].to_list() == ["10 spent"]
        assert corrections(truth(content(1, 10)), announced, NO_CAUSES).height == 0


@given(st.lists(st.none() | st.text(st.sampled_from('{}[]":,\\\n1.e-0aé '), max_size=12) | OBJECTS))
def test_what_is_an_object_is_known_as_json_has_it(texts: list[str | None]) -> None:
    """Also of those that are not parsed for it."""
    written = [*texts, '{"n":' + "9" * 5000 + "}", '{"n":01}', '{"a":"\n"}', '{"a":1,}']

    def is_object(text: str | None) -> bool:
        try:
            return text is not None and isinstance(json.loads(text), dict)
        except ValueError:
            return False

    rows = pl.DataFrame({**record(1, 2), "group": text, "number": number} for number, text in enumerate(written))
    kept = well_formed(rows.cast({"group": pl.String}).lazy()).collect()
    assert kept.get_column("number").to_list() == [n for n, text in enumerate(written) if is_object(text)]


def test_a_pending_alert_that_neither_side_has_is_withdrawn() -> None:
    """And only that: one that has an outcome keeps it."""
    judged = reconcile(truth(content(1, 10)), alerts()).with_columns(cause=pl.lit("late_event"))
    earlier = reconcile(truth(content(1, 10), content(2, 10)), alerts()).with_columns(
        cause=pl.lit("stream_down"), day=pl.lit(0)
    )
    found = with_withdrawn(judged, earlier)
    assert found.columns == judged.columns
    rows = {row["event_id"]: (row["outcome"], row["cause"], row["measures"]) for row in found.to_dicts()}
    first, second = (content(number, 10)["event_id"] for number in (1, 2))
    assert rows.pop(second) == ("withdrawn", None, None)
    assert rows[first][:2] == ("missed", "late_event")
    assert with_withdrawn(judged, earlier.clear()).equals(judged)


def test_the_mark_of_overflow_is_no_difference_and_is_kept() -> None:
    """S10.6: an alert that has it is matched; where it is corrected, the correction has it too."""
    true = truth(content(1, 10), content(2, 20))
    announced = alerts(record(1, 10, overflow=True), record(2, 21, overflow=True), record(3, 30))
    found = reconcile(true, announced).select("outcome", "stream_overflow").rows()
    assert found == [("matched", True), ("revised", True), ("retracted", None)]
    wrong = with_overflow(corrections(true, announced, NO_CAUSES), 1)
    assert wrong.select("alert_id", "revision", "overflow").rows() == [("a2", 2, True), ("a3", 2, None)]


def test_a_flood_of_new_alerts_is_marked_in_the_corrections() -> None:
    """S10.6: where the stream was down for hours, people are not to be flooded by the backfill instead."""
    wrong = corrections(truth(*(content(number, 10) for number in range(5))), alerts(), NO_CAUSES)
    assert with_overflow(wrong, None).get_column("overflow").to_list() == [None] * 5
    assert with_overflow(wrong, 3).get_column("overflow").to_list() == [None, None, None, True, True]
