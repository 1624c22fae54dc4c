"""One text means the same in JSON, CSV and Parquet: docs/reference/event-files.md, row by row, over all three."""

import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from checks.fuzz.hostile_events import NUMBERS, STRINGS, TIMES
from nightjar.files.errors import EventsError
from nightjar.files.event_columns import MisfitError, as_declared
from nightjar.files.event_files import read_events
from nightjar.formats.records import Records
from nightjar.ingestion.parsing import parse_columns
from nightjar.rules.event_values import too_long, typed_text
from nightjar.rules.streams import Stream, streams_from_mapping
from nightjar.rules.types import FieldType, Kind

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "event-files.md"
TYPES = ("string", "boolean", "int64", "double", "decimal(12,2)", "timestamp")
FORMATS = ("jsonl", "csv", "parquet")


class Row(NamedTuple):
    """A row of the table. json: None where JSON has no such value; value: None where it is refused, for `why`."""

    declared: str
    json: str | None
    text: str
    value: str | None
    why: str


def rows() -> list[Row]:
    """The first table of the page, without its last row, which is about NULL."""
    _, _, after = PAGE.read_text().partition("| --- | --- | --- | --- |\n")
    found = []
    for line in after.partition("\n\n")[0].splitlines()[:-1]:
        declared, written, text, meaning = (cell.strip() for cell in line.strip("|").split(" | "))
        value = re.fullmatch("`(.*)`", meaning)
        literal = None if written == "no such value" else written.strip("`")
        found.append(Row(declared, literal, text.strip("`"), value and value[1], meaning.removeprefix("refused: ")))
    return found


def stream(declared: str) -> Stream:
    """A stream with a field of the type."""
    fields = {"id": "string", "at": "timestamp", "value": declared}
    body = {"event_id": "id", "event_time": "at", "entities": ["id"], "fields": fields}
    return streams_from_mapping({"s": body}, "test")["s"]


def write(folder: Path, kind: str, text: str) -> Path:
    """A file of one event whose value is the text; of JSON lines, a JSON literal."""
    path = folder / f"e.{kind}"
    if kind == "jsonl":
        path.write_text(f'{{"id": "1", "at": 0, "value": {text}}}\n')
    elif kind == "csv":
        path.write_text(f'id,at,value\n1,0,"{text}"\n')
    else:
        pq.write_table(pa.table({"id": ["1"], "at": [0], "value": [text]}), path)
    return path


def shown(value: object) -> str:
    """A value as the page writes it."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_the_page_has_every_type() -> None:
    """A type that has no row would not be tested."""
    assert {row.declared for row in rows()} == set(TYPES)
    assert len(rows()) > 25


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.declared} {row.text}")
def test_a_text_means_the_same_in_every_format(tmp_path: Path, row: Row, kind: str) -> None:
    """As the page says: the same value, or the same reason."""
    text = row.json if kind == "jsonl" else row.text
    if text is None:
        with pytest.raises(EventsError, match="not_json"):  # the page is right
            read_events(write(tmp_path, kind, row.text), stream(row.declared))
        return
    path = write(tmp_path, kind, text)
    if row.value is not None:
        assert shown(read_events(path, stream(row.declared))["value"][0].as_py()) == row.value
        return
    with pytest.raises(EventsError, match=re.escape(row.why)) as refused:
        read_events(path, stream(row.declared))
    assert "value" in str(refused.value)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("declared", TYPES)
def test_nothing_is_null(tmp_path: Path, declared: str, kind: str) -> None:
    """The last row of the table."""
    path = write(tmp_path, kind, "null")
    if kind == "csv":
        path.write_text("id,at,value\n1,0,\n")
    elif kind == "parquet":
        pq.write_table(pa.table({"id": ["1"], "at": [0], "value": pa.array([None], pa.string())}), path)
    assert read_events(path, stream(declared))["value"].to_pylist() == [None]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("2026-01-05T12:00:00", "UTC", "2026-01-05T12:00:00.000000Z"),
        ("2026-01-05 12:00", "Europe/Berlin", "2026-01-05T11:00:00.000000Z"),
        ("2026-07-05T12:00:00.5", "Europe/Berlin", "2026-07-05T10:00:00.500000Z"),
        ("2026-01-05", "Asia/Tokyo", "2026-01-04T15:00:00.000000Z"),
        ("2040-07-05T12:00:00", "Europe/Berlin", "2040-07-05T10:00:00.000000Z"),
        ("2040-10-28T02:30:00", "Europe/Berlin", "clocks in Europe/Berlin are changed then"),
        ("-62135596800001", "UTC", "outside the years 1 to 9999|without quotes"),
        ("2026-01-05T12:00:00Z", "Asia/Tokyo", "2026-01-05T12:00:00.000000Z"),
        ("2026-10-25T02:30:00", "Europe/Berlin", "clocks in Europe/Berlin are changed then"),
        ("2026-03-29T02:30:00", "Europe/Berlin", "clocks in Europe/Berlin are changed then"),
        ("2026-02-30T12:00:00", "UTC", "cannot be read|is not a valid"),
        ("2026-01-05T12:00:00+0100", "UTC", "a colon is missing"),
    ],
)
def test_a_named_zone_is_that_of_times_without_one(
    tmp_path: Path, text: str, zone: str, expected: str, kind: str
) -> None:
    """In every format alike; a time that the zone has twice, or never, is refused."""
    path = write(tmp_path, kind, f'"{text}"' if kind == "jsonl" else text)
    if expected.endswith("Z"):
        found = read_events(path, stream("timestamp"), zone=ZoneInfo(zone))
        assert shown(found["value"][0].as_py()) == expected
    else:
        with pytest.raises(EventsError, match=expected):
            read_events(path, stream("timestamp"), zone=ZoneInfo(zone))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_missing_zone_has_a_remedy(tmp_path: Path, kind: str) -> None:
    """Whoever cannot change the file names the zone."""
    with pytest.raises(EventsError, match="its zone is missing") as refused:
        read_events(
            write(tmp_path, kind, '"2026-01-05T12:00"'.strip('"' if kind != "jsonl" else "")), stream("timestamp")
        )
    assert "--zone UTC" in refused.value.remedy


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([datetime(2026, 7, 5, 12)], pa.timestamp("ns")), datetime(2026, 7, 5, 10, tzinfo=UTC)),  # noqa: DTZ001
        (pa.array([datetime(2026, 7, 5).date()], pa.date32()), datetime(2026, 7, 4, 22, tzinfo=UTC)),  # noqa: DTZ001
        (pa.array([datetime(2040, 7, 5, 12)], pa.timestamp("us")), datetime(2040, 7, 5, 10, tzinfo=UTC)),  # noqa: DTZ001
    ],
    ids=["time", "date", "after Arrow's tables"],
)
def test_a_named_zone_is_that_of_columns_without_one(column: pa.Array, expected: datetime) -> None:
    """Timestamps without a zone, and dates, as Parquet has them."""
    kind = FieldType(Kind.TIMESTAMP)
    assert as_declared(pa.chunked_array([column]), kind, ZoneInfo("Europe/Berlin")).to_pylist() == [expected]
    with pytest.raises(MisfitError, match="its zone is missing"):
        as_declared(pa.chunked_array([column]), kind)


@given(
    st.sampled_from(TYPES),
    st.sampled_from([None, "UTC", "Europe/Berlin"]),
    st.lists(
        st.one_of(st.sampled_from([*NUMBERS, *STRINGS, *TIMES]), st.from_regex(r"-?[0-9.eE+]{1,20}", fullmatch=True))
    ),
)
@example("string", None, ["1" * 5000])
def test_columns_are_what_their_cells_are(declared: str, zone: str | None, texts: list[str]) -> None:
    """What Arrow reads at once is what is read value by value."""
    kind, at = FieldType.parse(declared), None if zone is None else ZoneInfo(zone)
    texts = [text for text in texts if text.isascii()]
    each = [None if too_long(text, kind) else typed_text(text, kind, at) for text in texts]
    wrong = [row for row, value in enumerate(each) if value is None]
    column = pa.chunked_array([pa.array(texts, pa.string())])
    if wrong:
        with pytest.raises(MisfitError) as refused:
            as_declared(column, kind, at)
        assert refused.value.row == wrong[0]
        return
    found = as_declared(column, kind, at)
    assert found.type == kind.arrow
    assert (found.cast(pa.int64()) if kind.kind is Kind.TIMESTAMP else found).to_pylist() == each


@given(st.sampled_from(TYPES[1:]), st.sampled_from([*NUMBERS, "true", "false"]))
def test_a_cell_is_what_the_stream_reads_from_json(declared: str, text: str) -> None:
    """A number, true and false without quotes mean in a record what they mean in a cell."""
    record = f'{{"id": "1", "at": 0, "value": {text}}}'.encode()
    parsed = parse_columns(Records(pa.array([record], pa.binary()), pa.array([0], pa.int64())), stream(declared))
    cell = typed_text(text, FieldType.parse(declared))
    if any(rejection.reason == "not_json" for _, rejection in parsed.rejected):
        return
    values = parsed.events["value"]
    found = (values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values).to_pylist()
    assert found == ([] if cell is None else [cell])


def test_what_is_finer_than_a_microsecond_is_cut_off() -> None:
    """Also before 1970, as in a text."""
    column = pa.chunked_array([pa.array([-100, -1000, 1999, None], pa.timestamp("ns", "UTC"))])
    found = as_declared(column, FieldType(Kind.TIMESTAMP))
    assert found.cast(pa.int64()).to_pylist() == [-1, -1, 1, None]


@given(st.integers(0, 18), st.lists(st.integers(-(10**18), 10**18) | st.none(), min_size=1))
def test_a_column_of_decimals_is_read_as_the_nearest_doubles(scale: int, units: list[int | None]) -> None:
    """As the same number in a text is."""
    values = [None if each is None else Decimal(each).scaleb(-scale) for each in units]
    found = as_declared(pa.chunked_array([pa.array(values, pa.decimal128(38, scale))]), FieldType(Kind.DOUBLE))
    assert found.to_pylist() == [None if each is None else float(each) for each in values]


def test_a_decimal_keeps_its_digits(tmp_path: Path) -> None:
    """More digits than Arrow's decimals have, all of them zeros."""
    text = "12.30" + "0" * 40
    for kind in FORMATS:
        found = read_events(write(tmp_path, kind, text), stream("decimal(12,2)"))
        assert found["value"].to_pylist() == [Decimal("12.30")]
