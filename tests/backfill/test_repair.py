"""Repairing a day of a table, on real Delta tables."""

from collections.abc import Iterable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from nightjar.backfill.config import BackfillConfig
from nightjar.backfill.upkeep.repair import Repair, Repairing, repairable
from nightjar.lake import delta
from nightjar.lake.scanning import scan
from nightjar.lake.tables import ALERTS, VIOLATIONS, Table, events_table
from nightjar.rules.events import ERASED
from tests.support.lakes import STREAM, add, at, config_of

EVENTS = events_table(STREAM)
DAY = date(2026, 1, 5)


def payment(offset: int, day: int = 5, **changed: Any) -> dict[str, Any]:
    """A row of the table of events."""
    when = at(day, 10, offset)
    return {
        "transaction_id": f"t{day}-{offset}",
        "event_time": when,
        "customer_id": "ann",
        "terminal_id": "m",
        "amount": Decimal(offset),
        "arrival_time": when,
        "arrival_date": when.date(),
        "partition": 0,
        "offset": offset + 100 * day,
    } | changed


@pytest.fixture
def config(tmp_path: Path) -> BackfillConfig:
    """Ten payments on the 5th, in two commits, and three on the 6th."""
    made = config_of(tmp_path / "lake")
    add(made, EVENTS, [payment(number) for number in range(6)])
    add(made, EVENTS, [payment(number) for number in range(6, 10)])
    add(made, EVENTS, [payment(number, 6) for number in range(3)])
    return made


def repairing(config: BackfillConfig, table: Table = EVENTS, day: date | None = DAY) -> Repairing:
    """The repair of a day."""
    return Repairing(config, repairable(config)[table.name], day)


def offsets(config: BackfillConfig, day: date = DAY, version: int | None = None) -> list[int]:
    """Of the records of the day."""
    rows = scan(config.lake.root, EVENTS, version).filter(pl.col("arrival_date") == day)
    return sorted(rows.select("offset").collect().to_series())


def replace_day(config: BackfillConfig, rows: Iterable[dict[str, Any]]) -> None:
    """What somebody writes instead of the day."""
    delta.opened(config.lake.root, EVENTS).delete(f"arrival_date = '{DAY}'")
    add(config, EVENTS, rows)


def test_a_whole_day_is_left_alone(config: BackfillConfig) -> None:
    """No commit is made."""
    before = delta.version(config.lake.root, EVENTS)
    assert repairing(config).apply() == Repair(EVENTS.name, DAY, before, 10)
    assert delta.version(config.lake.root, EVENTS) == before


def test_equal_rows_are_kept_once(config: BackfillConfig) -> None:
    """In one commit, without a change of other days; the version before has them still. The plan writes nothing."""
    add(config, EVENTS, [payment(number) for number in (2, 3, 3)])
    before = delta.version(config.lake.root, EVENTS)
    plan = repairing(config).plan()
    assert (plan.rows, plan.rows_after, plan.restored, plan.refused) == (13, 10, None, "")
    assert plan.problems == (
        "3 rows too many: several for the same partition and offset (partition 0, offset 502; partition 0, offset 503)",
    )
    assert delta.version(config.lake.root, EVENTS) == before
    assert repairing(config).apply() == plan
    assert delta.version(config.lake.root, EVENTS) == before + 1
    assert offsets(config) == [500 + number for number in range(10)]
    assert len(offsets(config, version=before)) == 13
    assert offsets(config, date(2026, 1, 6)) == [600, 601, 602]
    assert not repairing(config).plan().problems


def test_rows_that_differ_are_those_of_an_earlier_version(config: BackfillConfig) -> None:
    """Two rows of a record with different amounts: the version before had one of them, and what came since is kept."""
    add(config, EVENTS, [payment(2, amount=Decimal(999))])
    before = delta.version(config.lake.root, EVENTS)
    add(config, EVENTS, [payment(20)])
    found = repairing(config).apply()
    assert (found.restored, found.rows, found.rows_after) == (before - 1, 12, 11)
    assert offsets(config) == [*(500 + number for number in range(10)), 520]
    amount = scan(config.lake.root, EVENTS).filter(pl.col("offset") == 502).select("amount").collect().item()
    assert amount == Decimal(2)


def test_what_the_gate_refuses_of_a_row_is_restored(config: BackfillConfig) -> None:
    """An amount beyond its declaration was rounded by nobody: somebody has updated the table."""
    held = delta.opened(config.lake.root, EVENTS)
    before = held.version()
    held.update(predicate="offset IN (501, 507)", updates={"transaction_id": "NULL"})
    plan = repairing(config).plan()
    assert plan.problems == ("violated by 2 rows: a usable record has an event id (transaction_id)",)
    assert (plan.restored, plan.taken, plan.rows_after) == (before, 2, 10)
    repairing(config).apply()
    assert not repairing(config).plan().problems
    ids = scan(config.lake.root, EVENTS).select("transaction_id").collect().to_series()
    assert ids.null_count() == 0


def test_deleted_rows_come_back(config: BackfillConfig) -> None:
    """They are found by the files that earlier versions name, also where records have come since."""
    before = delta.version(config.lake.root, EVENTS)
    delta.opened(config.lake.root, EVENTS).delete("offset IN (501, 502)")
    add(config, EVENTS, [payment(20)])
    plan = repairing(config).plan()
    assert plan.problems == ("2 rows that earlier versions have are missing",)
    assert (plan.restored, plan.taken, plan.rows_after) == (before, 2, 11)
    repairing(config).apply()
    assert offsets(config) == [*(500 + number for number in range(10)), 520]


def test_a_day_that_was_deleted_comes_back(config: BackfillConfig) -> None:
    """As a whole."""
    delta.opened(config.lake.root, EVENTS).delete(f"arrival_date = '{DAY}'")
    assert repairing(config).apply().rows_after == 10
    assert offsets(config) == [500 + number for number in range(10)]


@pytest.mark.parametrize("damage", ["deleted", "cut"])
def test_a_damaged_file_is_replaced_by_those_before_it(config: BackfillConfig, damage: str) -> None:
    """It was made of files that are still there."""
    held = delta.opened(config.lake.root, EVENTS)
    held.optimize.compact()
    file = next(Path(path) for path in held.file_uris() if f"arrival_date={DAY}" in path)
    file.unlink() if damage == "deleted" else file.write_bytes(file.read_bytes()[:-20])
    add(config, EVENTS, [payment(20)])
    plan = repairing(config).plan()
    assert plan.rows == 1
    assert "1 of its files cannot be read: events_transactions/arrival_date=2026-01-05/" in plan.problems[0]
    repairing(config).apply()
    assert offsets(config) == [*(500 + number for number in range(10)), 520]
    assert not repairing(config).plan().problems


def test_what_no_version_has_cannot_be_repaired(config: BackfillConfig) -> None:
    """The reason is named, and nothing is written."""
    held = delta.opened(config.lake.root, EVENTS)
    file = next(Path(path) for path in held.file_uris() if f"arrival_date={DAY}" in path)
    file.unlink()
    before = held.version()
    found = repairing(config).apply()
    assert found.rows_after is None
    assert "version 1 does not help: 4 rows are missing there too; nor does any before it" in found.refused
    assert delta.version(config.lake.root, EVENTS) == before


def test_a_wrong_row_that_was_always_wrong_stays(config: BackfillConfig) -> None:
    """Kafka brought it so; no version is better."""
    add(config, EVENTS, [payment(20, transaction_id=None)])
    add(config, EVENTS, [payment(21)])
    found = repairing(config).plan()
    assert found.rows_after is None
    assert "a usable record has an event id" in found.refused


def test_a_version_can_be_named(config: BackfillConfig) -> None:
    """For damage that no expectation shows. What it lacks of the newest is kept; a wrong version is refused."""
    held = delta.opened(config.lake.root, EVENTS)
    before = held.version()
    held.update(predicate="offset = 501", updates={"amount": "77"})
    assert not repairing(config).plan().problems
    plan = repairing(config).plan(before)
    assert (plan.restored, plan.taken, plan.rows_after) == (before, 1, 10)
    repairing(config).apply(before)
    rows = scan(config.lake.root, EVENTS).filter(pl.col("offset") == 501)
    assert rows.select("amount").collect().item() == Decimal(1)


def test_the_erased_stay_erased(config: BackfillConfig) -> None:
    """A version from before a person was forgotten gives back none of their rows."""
    erased = dict.fromkeys(STREAM.fields) | {"rejected": ERASED, "detail": "erased", "original": b""}
    before = delta.version(config.lake.root, EVENTS)
    replace_day(config, [payment(0, **erased), *(payment(number) for number in range(1, 9))])
    found = repairing(config).apply()
    assert (found.restored, found.rows_after) == (before, 10)
    rows = scan(config.lake.root, EVENTS).filter(pl.col("offset") == 500).collect()
    assert (rows["rejected"].to_list(), rows["customer_id"].to_list()) == ([ERASED], [None])


def test_other_tables_of_records_are_repaired_too(config: BackfillConfig) -> None:
    """Each record once, by its coordinates."""
    row = {"alert_id": "a", "arrival_time": at(5), "arrival_date": DAY, "partition": 0, "offset": 3}
    add(config, ALERTS, [row, row])
    assert repairing(config, ALERTS).apply().rows_after == 1


def test_results_of_nights_are_not_restored(config: BackfillConfig) -> None:
    """Equal rows go; for others the night is run again."""
    row = {"alert_id": "a", "event_date": DAY, "text": "x"}
    add(config, VIOLATIONS, [row, row])
    assert repairing(config, VIOLATIONS).apply().rows_after == 1
    add(config, VIOLATIONS, [row | {"text": "y"}])
    assert "`nightjar backfill --day 2026-01-05` does so again" in repairing(config, VIOLATIONS).plan().refused
