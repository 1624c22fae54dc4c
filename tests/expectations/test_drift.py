"""What is unusual about a day's records is found, in a lake whose days are known."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from nightjar.backfill.gate.gating import readings_of
from nightjar.expectations.drift import compared_days, drift, drift_suite
from nightjar.expectations.measured import measured
from nightjar.lake import delta
from nightjar.lake.tables import events_table
from tests.support.lakes import STREAM, add, config_of

DAY = date(2026, 1, 29)
TABLE = events_table(STREAM)
COLUMNS = ["rejected", *STREAM.fields]


def records(day: date, number: int, *, rejected: int = 0, **changed: Any) -> list[dict[str, Any]]:
    """Of a day, so many of them usable. changed: a field to its value, or to one for each record."""
    arrived = datetime.combine(day, datetime.min.time(), UTC)
    found = []
    for n in range(number + rejected):
        row = {"partition": 0, "offset": n, "arrival_time": arrived, "arrival_date": day}
        if n >= number:
            row |= {"rejected": "not_json"}
        else:
            event = {"transaction_id": f"{day}-{n}", "event_time": arrived, "customer_id": "c", "terminal_id": "t"}
            given = {name: of[n] if isinstance(of, list) else of for name, of in changed.items()}
            row |= {**event, "amount": Decimal(10), **given}
        found.append(row)
    return found


def found_in(
    folder: Path, days: Mapping[int, list[dict[str, Any]]]
) -> tuple[list[str], dict[tuple[str, str], tuple[Any, ...]]]:
    """What DAY breaks; and what is compared of it: today, usual and days by measure and field. days: of each records,
    which are a file."""
    config = config_of(folder)
    for rows in days.values():
        add(config, TABLE, rows)
    version = delta.version(folder, TABLE)
    counts = delta.counts_by_day(folder, TABLE, version, COLUMNS, compared_days(DAY))
    rows = drift(STREAM, DAY, counts, *readings_of(folder, TABLE, version, STREAM))
    broken = [each.expectation for each in measured(drift_suite(STREAM.name), rows) if each.observed]
    return broken, {(row[0], row[1]): row[2:] for row in rows.iter_rows()}


def weeks_ago(*numbers: int, **changed: Any) -> dict[int, list[dict[str, Any]]]:
    """So many records this week, and each week before."""
    return {n: records(DAY - timedelta(weeks=n), number, **changed) for n, number in enumerate(numbers)}


def test_a_usual_day_holds(tmp_path: Path) -> None:
    """The median of four weekdays is usual; other days do not count, nor unusable records for shares and means."""
    days = weeks_ago(8, 9, 5, 12, 7, rejected=3) | {
        9: records(DAY - timedelta(days=1), 100),
        10: records(DAY - timedelta(weeks=5), 100),
    }
    broken, found = found_in(tmp_path, days)
    assert broken == []
    assert found["records", ""] == (11.0, 11.0, 4, None)
    assert found["nulls", "terminal_id"] == (0.0, 0.0, 4, None)
    assert found["mean", "amount"] == (10.0, 10.0, 4, None)
    assert found["values", "terminal_id"] == (0.0, 0.0, 4, "")


@pytest.mark.parametrize(
    ("today", "broken"),
    [
        (records(DAY, 25), ["records_usual"]),
        (records(DAY, 4), ["records_usual"]),
        ([], ["records_usual"]),
        (records(DAY, 10, terminal_id=[None, *"123456789"]), ["nulls_usual", "values_usual"]),
        (records(DAY, 10, amount=Decimal("20.01")), ["mean_usual"]),
        (records(DAY, 10, amount=[None] * 10), ["nulls_usual"]),
        (records(DAY, 20, amount=Decimal(20)), []),
        (records(DAY, 0, rejected=10), []),
    ],
)
def test_an_unusual_day_is_found(tmp_path: Path, today: list[dict[str, Any]], broken: list[str]) -> None:
    """Twice or half as much is the limit; a day without records is unusual, too."""
    assert found_in(tmp_path, {**weeks_ago(10, 10, 10, 10), 0: today})[0] == broken


def test_new_values_of_a_text_that_has_few(tmp_path: Path) -> None:
    """They are named, the most frequent first. Names of something are often new, which is usual then."""
    usual = {"terminal_id": ["a", "b"] * 100, "customer_id": [f"c{n}" for n in range(200)]}
    days = weeks_ago(200, 200, 200, **usual)
    new = ["a", None] * 97 + ["x", "x", "y", "", "y", "x"]
    days[0] = records(DAY, 200, terminal_id=new, customer_id=[f"d{n}" for n in range(200)])
    broken, found = found_in(tmp_path, days)
    assert broken == ["nulls_usual", "values_usual"]
    assert found["values", "terminal_id"] == (6 / 103, 0.0, 2, "x, y, ")
    assert ("values", "customer_id") not in found, "it has too many"
    assert ("values", "transaction_id") not in found
    days = weeks_ago(8, 10, 10) | {0: records(DAY, 8, terminal_id="new")}
    assert found_in(tmp_path / "names", days)[0] == ["values_usual"]
    days |= {n: records(DAY - timedelta(weeks=n), 10, terminal_id=list("abcdefg") + [str(n)] * 3) for n in (1, 2)}
    broken, found = found_in(tmp_path / "often", days | {0: records(DAY, 10, terminal_id=list("abcdefgxyz"))})
    assert (broken, found["values", "terminal_id"]) == ([], (0.3, 0.3, 2, "x, y, z"))


def test_few_days_make_nothing_usual(tmp_path: Path) -> None:
    """One is not enough, and means are not read then."""
    broken, found = found_in(tmp_path, weeks_ago(100, 10))
    assert broken == []
    assert found["records", ""] == (100.0, 10.0, 1, None)
    assert ("mean", "amount") not in found


def test_a_lake_without_records(tmp_path: Path) -> None:
    """Nothing came, and nothing is usual."""
    assert found_in(tmp_path, {}) == ([], {("records", ""): (0.0, None, 0, None)})


def test_where_the_log_has_no_counts_nothing_is_compared(tmp_path: Path) -> None:
    """Delta keeps those of the first columns only."""
    config = config_of(tmp_path)
    add(config, TABLE, records(DAY, 3))
    counts = delta.counts_by_day(tmp_path, TABLE, delta.version(tmp_path, TABLE), [*COLUMNS, "other"], [DAY])
    assert counts["other"].to_list() == [None]
    without = counts.with_columns(pl.lit(None, pl.Int64).alias("amount"))
    rows = drift(STREAM, DAY, without, lambda _: pl.DataFrame(), lambda _: pl.DataFrame())
    assert "amount" not in rows["field"].to_list()
