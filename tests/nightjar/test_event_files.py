"""Events in files, read as declared."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from nightjar.files.event_files import EventsError, read_events
from rules.streams import Stream, streams_from_mapping

STREAM: Stream = streams_from_mapping(
    {
        "s": {
            "event_id": "id",
            "event_time": "at",
            "entities": ["who"],
            "fields": {
                "id": "string",
                "at": "timestamp",
                "who": "string",
                "amount": "decimal(12,2)",
                "n": "int64",
                "x": "double",
                "ok": "boolean",
            },
        }
    },
    "test",
)["s"]

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
EVENT = {"id": "1", "at": NOON, "who": "a", "amount": Decimal("12.30"), "n": 5, "x": 1.5, "ok": True}


def parquet(tmp_path: Path, **columns: pa.Array) -> Path:
    """A file of one event, with some columns replaced."""
    given = {name: pa.array([value]) for name, value in EVENT.items()} | columns
    pq.write_table(pa.table(given), tmp_path / "events.parquet")
    return tmp_path / "events.parquet"


def test_three_formats_one_table(tmp_path: Path) -> None:
    """The same event is the same row from Parquet, CSV and JSON lines; other columns are ignored."""
    (tmp_path / "e.csv").write_text("x,id,at,who,amount,n,ok,more\n1.5,1,2026-01-05T13:00:00+01:00,a,12.3,5,true,!\n")
    (tmp_path / "e.jsonl").write_text(
        '{"id":1,"at":"2026-01-05T12:00:00Z","who":"a","amount":12.30,"n":5,"x":1.5,"ok":true}\n\n'
    )
    tables = [
        read_events(path, STREAM)
        for path in (parquet(tmp_path, more=pa.array([1])), tmp_path / "e.csv", tmp_path / "e.jsonl")
    ]
    for table in tables:
        assert table.select(STREAM.schema.names).to_pylist() == [EVENT]
        assert set(table.column_names) == set(STREAM.schema.names)


@pytest.mark.parametrize(
    ("name", "column", "value"),
    [
        ("id", pa.array([7], pa.int32()), "7"),
        ("id", pa.array(["x"]).dictionary_encode(), "x"),
        ("who", pa.array([True]), "true"),
        ("who", pa.array([None], pa.string()), None),
        ("at", pa.array([NOON.replace(tzinfo=None)], pa.timestamp("ms")), NOON),
        ("at", pa.array([1767614400000]), NOON),
        ("at", pa.array(["2026-01-05 12:00:00"]), NOON),
        ("at", pa.array([date(2026, 1, 5)]), datetime(2026, 1, 5, tzinfo=UTC)),
        ("at", pa.array([1767614400000000999], pa.timestamp("ns")), NOON),
        ("amount", pa.array([12.3]), Decimal("12.30")),
        ("amount", pa.array([float("nan")]), None),
        ("amount", pa.array([12], pa.int16()), Decimal("12.00")),
        ("amount", pa.array(["-0.05"]), Decimal("-0.05")),
        ("amount", pa.array([Decimal("12.3000")]), Decimal("12.30")),
        ("n", pa.array([5], pa.uint8()), 5),
        ("x", pa.array([5], pa.int64()), 5.0),
        ("x", pa.array([float("nan")]), None),
    ],
    ids=str,
)
def test_value_is_read_as_declared(tmp_path: Path, name: str, column: pa.Array, value: object) -> None:
    """Any scalar with the same meaning is accepted."""
    assert read_events(parquet(tmp_path, **{name: column}), STREAM)[name].to_pylist() == [value]


@pytest.mark.parametrize(
    ("name", "column", "expected"),
    [
        ("amount", pa.array([0.1 + 0.2]), "cannot be read as decimal"),
        ("amount", pa.array(["12,50"]), "not a valid decimal"),
        ("amount", pa.array([10**10]), "does not fit in precision"),
        ("amount", pa.array([True]), "not a number"),
        ("n", pa.array([1.5]), "truncated"),
        ("n", pa.array([2**63], pa.uint64()), "not in range"),
        ("x", pa.array([float("inf")]), "infinite"),
        ("ok", pa.array([1]), "not a boolean"),
        ("at", pa.array(["noon"]), "'noon' cannot be read as timestamp"),
        ("at", pa.array([1.5]), "not a time"),
        ("at", pa.array([None], pa.timestamp("us")), "row 1: at: is NULL"),
        ("at", pa.array([10**18]), "out of bounds"),
        ("at", pa.array(["0000-01-01"]), "years 1 to 9999"),
        ("id", pa.array([None], pa.string()), "row 1: id: is NULL"),
        ("id", pa.array([""]), "row 1: id: is empty"),
        ("id", pa.array([[1]]), "Unsupported cast"),
    ],
    ids=str,
)
def test_value_that_would_change_is_refused(tmp_path: Path, name: str, column: pa.Array, expected: str) -> None:
    """Nothing is rounded, cut or guessed; the message names the column."""
    with pytest.raises(EventsError, match=expected) as refused:
        read_events(parquet(tmp_path, **{name: column}), STREAM)
    assert name in refused.value.where


@pytest.mark.parametrize("wrong", [0, 1, 700, 999])
def test_refusal_names_the_first_row_and_its_value(tmp_path: Path, wrong: int) -> None:
    """Among a thousand rows the invalid one is reported, counted from 1."""
    amounts = [12.5] * 1000
    amounts[wrong] = 0.1 + 0.2
    columns = {name: pa.array([value] * 1000) for name, value in EVENT.items()}
    path = parquet(tmp_path, **columns | {"amount": pa.array(amounts)})
    with pytest.raises(EventsError, match=rf"row {wrong + 1}: amount \(double\): 0.30000000000000004 cannot be read"):
        read_events(path, STREAM)


def test_arrival_time_is_honoured(tmp_path: Path) -> None:
    """A column `arrival_time` comes along as microseconds in UTC."""
    table = read_events(parquet(tmp_path, arrival_time=pa.array([NOON], pa.timestamp("ms", "UTC"))), STREAM)
    assert table.schema.field("arrival_time").type == pa.timestamp("us", "UTC")
    (tmp_path / "e.jsonl").write_text(
        '{"id":1,"at":0,"who":null,"amount":1,"n":1,"x":1,"ok":true,"arrival_time":"2026-01-05T12:00:00Z"}\n'
    )
    assert read_events(tmp_path / "e.jsonl", STREAM)["arrival_time"].to_pylist() == [NOON]
    (tmp_path / "e.jsonl").write_text(
        '{"id":1,"at":0,"who":null,"amount":1,"n":1,"x":1,"ok":true,"arrival_time":1767614400000}\n'
    )
    assert read_events(tmp_path / "e.jsonl", STREAM)["arrival_time"].to_pylist() == [NOON]
    (tmp_path / "e.jsonl").write_text(
        '{"id":1,"at":0,"who":null,"amount":1,"n":1,"x":1,"ok":true,"arrival_time":"soon"}\n'
    )
    with pytest.raises(EventsError, match="line 1: arrival_time is 'soon'"):
        read_events(tmp_path / "e.jsonl", STREAM)


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_an_optional_field_without_a_column_is_null(tmp_path: Path, suffix: str) -> None:
    """In every kind of file, and in its declared place; a plain field without one is refused."""
    stream, path = replace(STREAM, optional=frozenset({"amount", "n"})), tmp_path / f"events{suffix}"
    given = pa.table({name: [value] for name, value in EVENT.items() if name not in stream.optional})
    if suffix == ".parquet":
        pq.write_table(given, path)
    elif suffix == ".csv":
        csv.write_csv(given, path)
    else:
        path.write_text("\n".join(json.dumps(row, default=str) for row in given.to_pylist()))
    events = read_events(path, stream)
    assert events.schema == stream.schema
    assert (events["amount"].to_pylist(), events["n"].to_pylist()) == ([None], [None])
    with pytest.raises(EventsError, match="amount"):
        read_events(path, STREAM)


def broken_parquet(path: Path) -> Path:
    path.with_suffix(".parquet").write_bytes(b"PAR1 not really")
    return path.with_suffix(".parquet")


def broken_line(path: Path) -> Path:
    path.with_suffix(".jsonl").write_text('{"id":1,"at":0,"who":"a","amount":1,"n":1,"x":1,"ok":true}\n{"id":2}\n')
    return path.with_suffix(".jsonl")


def empty_csv(path: Path) -> Path:
    path.with_suffix(".csv").write_text("")
    return path.with_suffix(".csv")


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (broken_parquet, "cannot be read"),
        (broken_line, "line 2: missing_field: at is absent"),
        (empty_csv, "cannot be read"),
        (lambda path: path.with_suffix(".parquet"), "does not exist"),
    ],
)
def test_file_that_is_none_is_one_message(tmp_path: Path, make: Callable[[Path], Path], expected: str) -> None:
    """Whatever is wrong with a file, the error names it."""
    path = make(tmp_path / "events")
    with pytest.raises(EventsError, match=expected) as refused:
        read_events(path, STREAM)
    assert str(path) in refused.value.where
