"""Tables that get a column: of a field that was declared later, or of a newer release."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from nightjar.lake import delta
from nightjar.lake.config import LakeError
from nightjar.lake.scanning import columns, scan, scan_files
from nightjar.lake.stream_state import refuse_other_fields
from nightjar.lake.tables import RUNS, Table, events_table
from nightjar.rules.streams import Stream, load_streams
from nightjar.rules.types import BOOLEAN, STRING, decimal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ARRIVED = datetime(2026, 1, 5, 12, tzinfo=UTC)
STREAM = load_streams()["transactions"]
ADDED = {"device": STRING, "fee": decimal(9, 3), "online": BOOLEAN}
WIDER = replace(STREAM, fields=MappingProxyType({**ADDED, **STREAM.fields}), optional=frozenset(ADDED))


def add(spark: "SparkSession", root: Path, table: Table, number: int, **values: Any) -> None:
    """Append a row with these values; the others are NULL."""
    row = dict.fromkeys(table.columns) | {"arrival_date": ARRIVED.date(), "arrival_time": ARRIVED} | values
    given = tuple(row[name] for name in table.columns)
    delta.append(spark.createDataFrame([given], table.schema), root, table, "test", number)


def test_a_field_that_is_declared_later_is_null_in_older_rows(spark: "SparkSession", tmp_path: Path) -> None:
    """By every way of reading, before the column is added, after that, and of a version from before."""
    old, new = events_table(STREAM), events_table(WIDER)
    delta.make(tmp_path, old)
    add(spark, tmp_path, old, 0, transaction_id="t0")
    before = delta.version(tmp_path, old)

    def read(at: int | None = None) -> list[list[tuple[Any, ...]]]:
        """id, device and fee by each way."""
        names = ("transaction_id", "device", "fee", "online")
        version = delta.version(tmp_path, new) if at is None else at
        files = delta.files_within(tmp_path, new, version, instant="event_time", spans=[(0, 1 << 60)])
        polars = (scan(tmp_path, new, at), scan_files(new, files))
        found = [frame.select(names).collect().rows() for frame in polars]
        found.append([tuple(row) for row in delta.read(spark, tmp_path, new, at).select(*names).collect()])
        return [sorted(rows) for rows in found]

    assert read() == 3 * [[("t0", None, None, None)]]
    refuse_other_fields(tmp_path, WIDER)
    delta.make(tmp_path, new)
    assert delta.version(tmp_path, new) == before + 1
    delta.make(tmp_path, new)
    assert delta.version(tmp_path, new) == before + 1, "nothing is left to add"
    assert dict(scan(tmp_path, new).collect_schema()) == dict(columns(new)), "in the columns' own types"
    add(spark, tmp_path, new, 1, transaction_id="t1", device="phone", online=True)
    assert read() == 3 * [[("t0", None, None, None), ("t1", "phone", None, True)]]
    assert read(before) == 3 * [[("t0", None, None, None)]]


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (
            replace(WIDER, optional=frozenset({"fee", "online"})),
            'it optional: device = {type = "string", optional = true}',
        ),
        (
            replace(STREAM, fields={**STREAM.fields, "amount": STRING}),
            "fields.amount is string, but the lake has it as dec",
        ),
    ],
)
def test_a_lake_with_other_fields_is_refused(
    spark: "SparkSession", tmp_path: Path, stream: Stream, message: str
) -> None:
    """A plain field that is new, and a changed type: with the field, what the lake has, and what to do."""
    refuse_other_fields(tmp_path, stream)
    delta.make(tmp_path, events_table(STREAM))
    with pytest.raises(LakeError) as refused:
        refuse_other_fields(tmp_path, stream)
    assert message in str(refused.value)


def test_a_table_of_an_older_release_gets_the_columns_it_lacks(spark: "SparkSession", tmp_path: Path) -> None:
    """Any table, with the rows it has."""
    older = replace(RUNS, columns={name: kind for name, kind in RUNS.columns.items() if name not in ("cut", "failure")})
    delta.make(tmp_path, older)
    row = tuple("r1" if name == "run_id" else None for name in older.columns)
    delta.append(spark.createDataFrame([row], older.schema), tmp_path, older, "test", 0)
    delta.make(tmp_path, RUNS)
    runs = scan(tmp_path, RUNS).select("run_id", "cut", "failure").collect()
    assert runs.rows() == [("r1", None, None)]
    assert runs.schema["cut"] == pl.Datetime("us", "UTC")
