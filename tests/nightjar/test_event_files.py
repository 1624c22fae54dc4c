"""Events in files, read as declared."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from nightjar.files.bad_lines import BadLines
from nightjar.files.errors import EventsError
from nightjar.files.evaluate import evaluate
from nightjar.files.event_files import doubtful_times, read_events
from nightjar.rules.event_values import MAX_STRING
from nightjar.rules.model import parse_rule
from nightjar.rules.streams import Stream, streams_from_mapping

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


def written(path: Path, **columns: pa.Array | None) -> Path:
    """The event in any format, with some columns replaced, added or (None) left out."""
    given = {name: pa.array([value]) for name, value in EVENT.items()} | columns
    table = pa.table({name: column for name, column in given.items() if column is not None})
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".csv":
        csv.write_csv(table, path)
    else:
        path.write_text("\n".join(json.dumps(row, default=str) for row in table.to_pylist()))
    return path


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
        ("at", pa.array([NOON], pa.timestamp("ms", "Asia/Tokyo")), NOON),
        ("at", pa.array([1767614400000]), NOON),
        ("at", pa.array([1767614400000000999], pa.timestamp("ns", "UTC")), NOON),
        ("id", pa.array([1.0]), "1.0"),
        ("id", pa.array([1e-7]), "1e-07"),
        ("who", pa.array([0.1], pa.float32()), "0.1"),
        ("who", pa.array([Decimal("0.0000001")]), "0.0000001"),
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
        ("at", pa.array([NOON.replace(tzinfo=None)], pa.timestamp("ms")), "its zone is missing.*--zone UTC"),
        ("at", pa.array([date(2026, 1, 5)]), "its zone is missing.*--zone UTC"),
        ("who", pa.array(["x" * 2049]), "it has 2049 characters, more than 2048"),
        ("amount", pa.array(["12,50"]), "it has a comma"),
        ("amount", pa.array([10**10]), "does not fit in precision"),
        ("amount", pa.array([True]), "not a number"),
        ("n", pa.array([1.5]), "truncated"),
        ("n", pa.array([2**63], pa.uint64()), "not in range"),
        ("x", pa.array([float("inf")]), "infinite"),
        ("ok", pa.array([1]), "not a boolean"),
        ("at", pa.array(["noon"]), "'noon' cannot be read as timestamp"),
        ("at", pa.array([1.5]), "not a time"),
        ("at", pa.array([None], pa.timestamp("us", "UTC")), "row 1: at: is NULL"),
        ("at", pa.array([10**18]), "out of bounds"),
        ("at", pa.array([-(10**14)]), "years 1 to 9999"),
        ("at", pa.array(["0000-01-01T00:00:00Z"]), "no calendar has it"),
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


@pytest.mark.parametrize("longest", [3, MAX_STRING + 1], ids=["short", "one too long"])
def test_texts_that_come_again_may_stay_encoded(tmp_path: Path, longest: int) -> None:
    many = 600
    names = [None if at % 7 == 0 else f"{at * 5 // many}{at % 11}" for at in range(many)]  # other ones in each group
    names[-1] = "z" * longest
    columns = {name: [value] * many for name, value in EVENT.items()} | {"who": names, "id": [*map(str, range(many))]}
    columns["at"] = [NOON + timedelta(seconds=at) for at in range(many)]
    file = tmp_path / "events.parquet"
    pq.write_table(pa.table(columns), file, row_group_size=120)
    bads = BadLines(9), BadLines(9)
    plain, coded = (read_events(file, STREAM, coded=way, bad=bad) for way, bad in zip((False, True), bads, strict=True))
    assert pa.types.is_dictionary(coded.schema.field("who").type) == (longest == 3)
    assert not pa.types.is_dictionary(coded.schema.field("id").type)
    assert coded.cast(plain.schema).equals(plain)
    assert bads[0].examples == bads[1].examples
    counted = {"id": "r", "stream": "s", "group_by": ["who"], "when": "many > 2 AND last <> '11'"}
    counted["measures"] = {"many": {"count": "*", "over": "1m"}, "last": {"last": "who", "over": "1m"}}
    rule = parse_rule(counted, {"s": STREAM})
    found = [evaluate(STREAM, [rule], table).table(every=True) for table in (plain, coded)]
    assert found[0].num_rows
    assert found[0].equals(found[1])


def arriving(path: Path) -> pa.Table:
    """The file's events with their arrivals."""
    return read_events(path, STREAM, arrivals=True)


def test_arrival_time_comes_along_where_it_is_asked_for(tmp_path: Path) -> None:
    """A column `arrival_time` is read as microseconds in UTC."""
    table = arriving(parquet(tmp_path, arrival_time=pa.array([NOON], pa.timestamp("ms", "UTC"))))
    assert table.schema.field("arrival_time").type == pa.timestamp("us", "UTC")
    (tmp_path / "e.jsonl").write_text(
        '{"id":1,"at":0,"who":null,"amount":1,"n":1,"x":1,"ok":true,"arrival_time":"2026-01-05T12:00:00Z"}\n'
    )
    assert arriving(tmp_path / "e.jsonl")["arrival_time"].to_pylist() == [NOON]
    (tmp_path / "e.jsonl").write_text(
        '{"id":1,"at":0,"who":null,"amount":1,"n":1,"x":1,"ok":true,"arrival_time":1767614400000}\n'
    )
    assert arriving(tmp_path / "e.jsonl")["arrival_time"].to_pylist() == [NOON]
    (tmp_path / "e.jsonl").write_text(
        '{"id":1,"at":0,"who":null,"amount":1,"n":1,"x":1,"ok":true,"arrival_time":"soon"}\n'
    )
    with pytest.raises(EventsError, match="line 1: arrival_time is 'soon'"):
        arriving(tmp_path / "e.jsonl")
    (tmp_path / "e.csv").write_text("id,at,who,amount,n,x,ok,arrival_time\n1,0,a,1,1,1,true,0\n2,0,a,1,1,1,true,\n")
    with pytest.raises(EventsError, match="line 3: arrival_time: is NULL"):
        arriving(tmp_path / "e.csv")


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_arrival_time_is_ignored_like_any_undeclared_column(tmp_path: Path, suffix: str) -> None:
    """Whatever it holds, where arrivals are not asked for."""
    path = written(tmp_path / f"e{suffix}", arrival_time=pa.array(["gate 4"]))
    assert read_events(path, STREAM).to_pylist() == [EVENT]


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_an_optional_field_without_a_column_is_null(tmp_path: Path, suffix: str) -> None:
    """In every kind of file, and in its declared place; a plain field without one is refused."""
    stream = replace(STREAM, optional=frozenset({"amount", "n"}))
    path = written(tmp_path / f"events{suffix}", amount=None, n=None)
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
        (empty_csv, "is empty"),
        (lambda path: path.with_suffix(".parquet"), "does not exist"),
    ],
)
def test_file_that_is_none_is_one_message(tmp_path: Path, make: Callable[[Path], Path], expected: str) -> None:
    """Whatever is wrong with a file, the error names it."""
    path = make(tmp_path / "events")
    with pytest.raises(EventsError, match=expected) as refused:
        read_events(path, STREAM)
    assert str(path) in refused.value.where


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl"])
def test_a_folder_is_its_files(tmp_path: Path, ending: str) -> None:
    """As Spark writes them: in the order of their paths, without what is hidden or begins with an underscore."""
    folder = tmp_path / "events.parquet"
    for number in (2, 0, 1):
        written(folder / f"part-0000{number}{ending}", id=pa.array([str(number)]))
    for name in ("_SUCCESS", f".part-00000{ending}.crc", "_temporary/0/x.parquet"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")
    assert read_events(folder, STREAM).to_pylist() == [EVENT | {"id": str(number)} for number in range(3)]


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_names_of_folders_are_columns(tmp_path: Path, ending: str) -> None:
    """A field that a writer has put into the path is not lost, whether it is optional or not."""
    stream = replace(STREAM, optional=frozenset({"n"}))
    written(tmp_path / "in" / "who=00%2F7" / "n=7" / f"a{ending}", who=None, n=None)
    written(tmp_path / "in" / "who=b" / "n=__HIVE_DEFAULT_PARTITION__" / f"a{ending}", who=None, n=None)
    found = read_events(tmp_path / "in", stream).select(["who", "n"]).to_pylist()
    assert found == [{"who": "00/7", "n": 7}, {"who": "b", "n": None}]


def test_a_folder_that_cannot_be_read_names_the_file(tmp_path: Path) -> None:
    """An empty one, one with other files, and one of whose files only some have arrivals."""
    (tmp_path / "in").mkdir()
    with pytest.raises(EventsError, match="is a folder without files of events"):
        read_events(tmp_path / "in", STREAM)
    written(tmp_path / "in" / "a.parquet")
    written(tmp_path / "in" / "b.parquet", arrival_time=pa.array([NOON]))
    with pytest.raises(EventsError, match=r"a\.parquet: has no arrival_time, which other files have"):
        arriving(tmp_path / "in")
    assert read_events(tmp_path / "in", STREAM).num_rows == 2
    (tmp_path / "in" / "c.txt").write_text("")
    with pytest.raises(EventsError, match=r"c\.txt: has an unknown extension"):
        read_events(tmp_path / "in", STREAM)


HEADER = "id,at,who,amount,n,x,ok\n"
LINE = "{},2026-01-05T12:00:00Z,{},12.3,5,1.5,true\n"


@pytest.mark.parametrize(
    ("names", "line"),
    [
        (["a", '"cut', "b", "c"], 3),
        (["a", '"cut', "b", '"c"'], 3),
        (["a", '"two\nlines"', '"x"y', "c"], 5),
        (["a", 'an 5" pipe', "b", '"not closed'], 5),
    ],
    ids=["to the end", "to another quote", "text after a quote", "a quote within text"],
)
def test_a_quote_that_is_not_closed_is_an_error_with_its_line(tmp_path: Path, names: list[str], line: int) -> None:
    """Instead of a file that ends there."""
    path = tmp_path / "e.csv"
    path.write_text(HEADER + "".join(LINE.format(number, who) for number, who in enumerate(names)))
    with pytest.raises(EventsError, match="has a quote that is not closed") as refused:
        read_events(path, STREAM)
    assert refused.value.where == f"{path}: line {line}"


def test_quotes_in_csv(tmp_path: Path) -> None:
    """Line ends, commas and doubled quotes within them, also beyond the first block that Arrow reads."""
    names = ["a,b", "two\nlines", 'an 5" pipe', ""]
    path, many = tmp_path / "e.csv", 40_000
    quoted = ['"a,b"', '"two\nlines"', '"an 5"" pipe"', '""'] * (many // 4)
    path.write_text(HEADER + "".join(LINE.format(number, who) for number, who in enumerate(quoted)))
    assert path.stat().st_size > 1 << 20
    assert read_events(path, STREAM)["who"].to_pylist() == names * (many // 4)


def test_a_value_that_goes_on_for_ever_is_taken_for_a_quote(tmp_path: Path) -> None:
    """Instead of Python's own message."""
    path = tmp_path / "e.csv"
    path.write_text(HEADER + LINE.format(1, '"a') + LINE.format(2, "b") * 10_000)
    with pytest.raises(EventsError, match="line 2: has a value of more than 131,072 characters: is its quote closed"):
        read_events(path, STREAM)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_column_twice_is_refused_if_it_is_read(tmp_path: Path, ending: str) -> None:
    """Which of them counts cannot be known. Columns that are ignored may repeat."""
    path = tmp_path / f"e{ending}"

    def write(more: str) -> None:
        table = pa.table([pa.array([value]) for value in (*EVENT.values(), "b", "c")], [*EVENT, "more", more])
        csv.write_csv(table, path) if ending == ".csv" else pq.write_table(table, path)

    write("more")
    assert read_events(path, STREAM).to_pylist() == [EVENT]
    write("who")
    with pytest.raises(EventsError, match="has the column who 2 times"):
        read_events(path, STREAM)


def test_of_a_repeated_key_the_last_counts(tmp_path: Path) -> None:
    """As in the stream (tests/ingestion/test_parsing.py)."""
    (tmp_path / "e.jsonl").write_text('{"id":"1","who":"b","at":0,"amount":1,"n":1,"x":1,"ok":true,"who":"a"}')
    assert read_events(tmp_path / "e.jsonl", STREAM)["who"].to_pylist() == ["a"]


@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_a_byte_order_mark_is_skipped(tmp_path: Path, ending: str) -> None:
    """At the start of the file, where some editors and databases write one."""
    path = written(tmp_path / f"e{ending}")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_events(path, STREAM).to_pylist() == [EVENT]


def test_sensitive_values_are_not_shown(tmp_path: Path) -> None:
    """Neither of columns nor of JSON lines."""
    stream = replace(STREAM, sensitive=frozenset({"amount"}))
    for ending in (".parquet", ".jsonl"):
        with pytest.raises(EventsError, match="a value that is not shown") as refused:
            read_events(written(tmp_path / f"e{ending}", amount=pa.array(["secret"])), stream)
        assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([1_767_614_400], "all events have an at between 1970 and 1973.*is 1767614400 in seconds"),
        ([0, 1_767_614_400, 1_767_614_400_000], "1 of 3 events have"),
        ([0, 1_767_614_400_000, 100_000_000_000], None),
    ],
)
def test_epoch_seconds_are_suspected(tmp_path: Path, times: list[int], expected: str | None) -> None:
    """Numbers are milliseconds: those of today in seconds would be in January 1970."""
    table = pa.table({name: [value] * len(times) for name, value in EVENT.items()} | {"at": times})
    pq.write_table(table, tmp_path / "e.parquet")
    doubt = doubtful_times(read_events(tmp_path / "e.parquet", STREAM), STREAM)
    assert doubt is None if expected is None else re.search(expected, doubt or "")


PLACED: Stream = streams_from_mapping(
    {
        "s": {
            "event_id": "id",
            "event_time": "at",
            "entities": ["who"],
            "fields": {
                "id": {"type": "string", "from": "meta.id"},
                "at": {"type": "timestamp", "from": "meta.at", "unit": "s"},
                "who": "string",
                "price": {"type": "decimal(12,2)", "from": "items[1].price", "optional": True},
                "day": {"type": "timestamp", "format": "%d.%m.%Y", "zone": "Europe/Berlin"},
            },
        }
    },
    "test",
)["s"]
MIDNIGHT = datetime(2026, 1, 4, 23, tzinfo=UTC)


def placed(tmp_path: Path, suffix: str) -> Path:
    """Two events as records have them."""
    items = [{"price": Decimal("1.00")}, {"price": Decimal("2.50")}]
    rows = [
        {"meta": {"id": "1", "at": 1767614400.5}, "who": "a", "items": items, "day": "05.01.2026"},
        {"meta": {"id": "2", "at": 1767614400}, "who": None, "items": items[:1], "day": "05.01.2026"},
    ]
    path = tmp_path / f"events{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("\n".join(json.dumps(row, default=str) for row in rows))
    return path


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_values_are_read_at_their_places(tmp_path: Path, suffix: str) -> None:
    assert read_events(placed(tmp_path, suffix), PLACED).to_pylist() == [
        {"id": "1", "at": NOON.replace(microsecond=500_000), "who": "a", "price": Decimal("2.50"), "day": MIDNIGHT},
        {"id": "2", "at": NOON, "who": None, "price": None, "day": MIDNIGHT},
    ]


@pytest.mark.parametrize("header", ["id,at,who,price,day", "meta.id,meta.at,who,items[1].price,day"])
def test_a_column_has_the_name_of_the_field_or_of_its_place(tmp_path: Path, header: str) -> None:
    path = tmp_path / "events.csv"
    path.write_text(f"{header}\n1,1767614400,a,2.50,05.01.2026\n2,2026-01-05T12:00:00Z,a,,05.01.2026\n")
    found = read_events(path, PLACED)
    assert found["at"].to_pylist() == [NOON, NOON]
    assert found["price"].to_pylist() == [Decimal("2.50"), None]
    assert found["day"].to_pylist() == [MIDNIGHT, MIDNIGHT]


def test_a_time_that_is_written_otherwise_is_refused_with_its_row(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text("id,at,who,day\n1,1767614400,a,05.01.2026\n2,1767614400,a,2026-01-05\n")
    with pytest.raises(EventsError, match=r"line 3: day .*write it like %d\.%m\.%Y"):
        read_events(path, PLACED)


def test_a_column_without_the_place_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"meta": ["x"], "who": ["a"], "day": ["05.01.2026"]}), tmp_path / "events.parquet")
    with pytest.raises(EventsError, match=r"meta \(string\) has no meta\.id"):
        read_events(tmp_path / "events.parquet", PLACED)
    (tmp_path / "events.csv").write_text("who,day\na,05.01.2026\n")
    with pytest.raises(EventsError, match=r"has no column id \(meta\.id\)"):
        read_events(tmp_path / "events.csv", PLACED)


def plain_stream(**fields: object) -> Stream:
    declared = {"id": "string", "at": "timestamp", **fields}
    body = {"event_id": "id", "event_time": "at", "entities": ["id"], "fields": declared}
    return streams_from_mapping({"s": body}, "test")["s"]


def test_the_place_counts_where_a_file_has_it_and_the_name_else(tmp_path: Path) -> None:
    stream = plain_stream(payer={"type": "string", "from": "who.id"}, amount={"type": "double", "from": "amount.value"})
    common = {"id": ["1"], "at": [NOON], "payer": ["top"]}
    nested = {**common, "who": [{"id": "nested"}], "amount": [{"value": 1.5}]}
    pq.write_table(pa.table(nested), tmp_path / "nested.parquet")
    pq.write_table(pa.table({**common, "amount": [2.5]}), tmp_path / "flat.parquet")
    pq.write_table(pa.table({**common, "amount": [2.5], "who": ["x"]}), tmp_path / "other.parquet")
    found = {path.stem: read_events(path, stream).to_pylist()[0] for path in sorted(tmp_path.glob("*.parquet"))}
    assert {name: (event["payer"], event["amount"]) for name, event in found.items()} == {
        "nested": ("nested", 1.5),
        "flat": ("top", 2.5),
        "other": ("top", 2.5),
    }


def test_a_number_that_is_none_is_null_in_a_time_too(tmp_path: Path) -> None:
    stream = plain_stream(seen={"type": "timestamp", "unit": "s"})
    columns = {"id": ["1", "2"], "at": [NOON] * 2, "seen": [1767614400.0, float("nan")]}
    pq.write_table(pa.table(columns), tmp_path / "events.parquet")
    assert read_events(tmp_path / "events.parquet", stream)["seen"].to_pylist() == [NOON, None]


def test_lines_whose_envelope_says_that_they_are_no_events_are_left_out(tmp_path: Path) -> None:
    """As the stream leaves them out; the key and the headers stand in the line itself."""
    fields = {"id": {"type": "string", "from": "$change.lsn"}, "at": "timestamp", "key": "int64", "tenant": "string"}
    places = {"key": {"type": "int64", "from": "$key"}, "tenant": {"type": "string", "from": "$headers.tenant"}}
    body = {"event_id": "id", "event_time": "at", "entities": ["id"], "envelope": "debezium", "fields": fields | places}
    stream = streams_from_mapping({"s": body}, "test")["s"]
    row = {"at": "2026-01-05T12:00:00Z"}
    changes = [{"op": op, "before": row, "after": row, "lsn": at} for at, op in enumerate("cdtr")]
    lines = [json.dumps({**change, "$key": "7", "$headers": {"tenant": "a"}}) for change in changes]
    (tmp_path / "events.jsonl").write_text("\n".join(lines))
    found = read_events(tmp_path / "events.jsonl", stream).to_pylist()
    assert [(event["id"], event["key"], event["tenant"]) for event in found] == [("0", 7, "a"), ("3", 7, "a")]
