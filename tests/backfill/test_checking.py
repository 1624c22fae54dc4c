"""The gate's rows in parts: what is compared comes together, wherever it was read; events come to their violations."""

from collections.abc import Iterable
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from nightjar.backfill.gate.checking import Checks, EvaluationChecks, splits_of
from nightjar.backfill.staging import staged_files
from nightjar.expectations.measured import summed
from nightjar.expectations.suites import OUTCOME, VIOLATIONS, events_suite, reconciliation_suite, violations_suite
from nightjar.lake.arrow_shuffle import Work
from nightjar.rules.timestamps import microseconds
from nightjar.rules.truth import VIOLATION_SCHEMA
from tests.support.frames import DAY, EVENTS, NOON, RULES, STREAM, events, outcomes, violations

WHOLE_DAY = [(microseconds(NOON) - 1 * 43_200_000_000, microseconds(NOON) + 43_200_000_000)]


def exchanged(work: Work) -> pa.Table:
    """As Spark's tasks do it."""
    sent: dict[int, list[pa.Table]] = {}
    for task in range(work.tasks):
        for bucket, table in work.send(task):
            sent.setdefault(bucket, []).append(table)
    return pa.concat_tables(work.receive(bucket, pa.concat_tables(tables)) for bucket, tables in sent.items())


def laid(folder: Path, tables: Iterable[pa.Table]) -> Path:
    """A file a table."""
    folder.mkdir()
    for number, table in enumerate(tables):
        pq.write_table(table, folder / f"{number}.parquet")
    return folder


def broken(suite_of_counts: Iterable[object]) -> dict[str, int]:
    """What does not hold, and by how many rows."""
    return {found.expectation: found.observed for found in suite_of_counts if found.observed}  # type: ignore[attr-defined]


def test_one_alert_with_two_outcomes_is_found_in_two_files(tmp_path: Path) -> None:
    """The last four outcomes lie in another file, and one of them is about the first alert."""
    rows = outcomes({7: {"alert_id": "a0"}}).to_arrow(compat_level=pl.CompatLevel.oldest())
    folder = laid(tmp_path / "outcomes", [rows.slice(0, 4), rows.slice(4)])
    suite = reconciliation_suite(6, 6)
    parts = splits_of(0, staged_files(folder), 2)
    assert len(parts) == 2
    found = summed(suite, OUTCOME, exchanged(Checks([suite], parts, 3)))
    assert broken(found) == {"alert_id_unique": 1}
    assert [each.examples for each in found if each.observed] == [({"alert_id": "a0", "$rows": "2"},)]


def test_a_day_without_alerts_has_nothing_to_reconcile(tmp_path: Path) -> None:
    """No outcome is right where there is neither a violation nor an alert, and wrong where there is one."""
    parts = splits_of(0, staged_files(laid(tmp_path / "outcomes", [outcomes({}).to_arrow().slice(0, 0)])), 2)
    for violations_found, expected in ((0, {}), (3, {"violations_add_up": 3})):
        suite = reconciliation_suite(violations_found, 0)
        assert broken(summed(suite, OUTCOME, exchanged(Checks([suite], parts, 3)))) == expected


def checked(folder: Path, records: pl.DataFrame, staged: list[pa.Table]) -> dict[str, dict[str, int]]:
    """What is broken of the day's records, in files of nine, and of the staged violations, by suite."""
    whole = records.drop("arrival_date").to_arrow(compat_level=pl.CompatLevel.oldest())
    day = laid(folder / "day", [whole.slice(start, 9) for start in range(0, whole.num_rows, 9)])
    failed = [table.append_column("failed", pa.nulls(table.num_rows, pa.string())) for table in staged]
    files = staged_files(laid(folder / "violations", failed))
    suites = [events_suite(STREAM, EVENTS.columns), violations_suite()]
    parts = [*splits_of(0, staged_files(day), 2, DAY), *splits_of(1, files, 2)]
    work = EvaluationChecks(suites, parts, 3, [STREAM], RULES, WHOLE_DAY[0][1], WHOLE_DAY, files)
    counts = exchanged(work)
    columns = (EVENTS.columns, VIOLATIONS)
    return {
        suite.name: found
        for suite, kinds in zip(suites, columns, strict=True)
        if (found := broken(summed(suite, kinds, counts)))
    }


def test_what_is_right_is_right_in_parts(tmp_path: Path) -> None:
    """Each violation meets its event, in whichever file that is."""
    reported = violations()
    assert reported.num_rows > 4
    assert checked(tmp_path, events(), [reported.slice(0, 3), reported.slice(3)]) == {}


def test_copies_in_other_files_are_compared(tmp_path: Path) -> None:
    """A record twice, one event id with two contents, and a violation in two buckets; each far from its like."""
    reported = violations()
    spoiled = events({30: {"offset": 101, "partition": 0}, 35: {"transaction_id": "t1"}})
    found = checked(tmp_path, spoiled, [reported, reported.slice(0, 1)])
    assert found["events_transactions"] == {"coordinates_unique": 1, "event_id_names_one_event": 1}
    assert found["violations"]["alert_id_unique"] == 1


def test_a_violation_without_its_event_is_found(tmp_path: Path) -> None:
    """Neither one about no event, nor one of a stream that nobody has declared, passes for want of anything to hold it
    against."""
    reported = violations().to_pylist()
    rows = [{**reported[0], "event_id": "nobody"}, {**reported[1], "stream": "unheard-of"}]
    found = checked(tmp_path, events(), [pa.Table.from_pylist([row], VIOLATION_SCHEMA) for row in rows])
    assert found["violations"]["event_exists"] == 2
