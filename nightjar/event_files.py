"""Events in files: Parquet, CSV or JSON lines, read as a stream declares them.

How a value is read: a string field takes any scalar by its text; a timestamp takes a time stamp (without a zone: UTC),
a date, ISO text or integer epoch milliseconds; a decimal takes what it can hold exactly, doubles by their shortest
text; NaN is NULL. JSON lines mean what they mean in the stream (`rules/events.py`). Columns that are no field are
ignored, except `arrival_time`.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from rules.errors import NightjarError
from rules.events import Rejection, parse_event
from rules.streams import Stream, did_you_mean
from rules.timestamps import parse_timestamp
from rules.types import STRING, TIMESTAMP, FieldType, Kind

ARRIVAL = "arrival_time"

_JSON_LINES_AT_ONCE = 100_000


class EventsError(NightjarError):
    """A file of events cannot be read, or does not hold what its stream declares."""


def read_events(path: Path, stream: Stream) -> pa.Table:
    """A file's events in its order: the stream's schema, then `arrival_time` (timestamp us UTC) if the file has it.

    Raises:
        EventsError: the file cannot be read, lacks a field, or holds a value its field cannot take; says where.
    """
    readers: dict[str, Callable[[Path, Stream], pa.Table]] = {
        ".parquet": _parquet,
        ".csv": _csv,
        ".jsonl": _json_lines,
        ".ndjson": _json_lines,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise EventsError("is no file of events by its name", where=str(path), remedy=f"Name it {', '.join(readers)}")
    if not path.is_file():
        raise EventsError("there is no such file", where=str(path), remedy="Name a file of events")
    try:
        table = reader(path, stream)
    except (OSError, pa.ArrowInvalid) as error:
        raise EventsError(f"cannot be read: {_first_line(error)}", where=str(path), remedy="Check its format") from None
    for name in (stream.event_id, stream.event_time, ARRIVAL):
        if name in table.column_names and table[name].null_count:
            row = pc.index(pc.is_null(table[name]), value=True).as_py()
            raise EventsError("is NULL", where=f"{path}: row {row + 1}: {name}", remedy="Every event needs one")
    return table


def _parquet(path: Path, stream: Stream) -> pa.Table:
    import pyarrow.parquet as pq

    names = pq.read_schema(path).names
    return _declared(pq.read_table(path, columns=_wanted(path, stream, names)), stream, path)


def _csv(path: Path, stream: Stream) -> pa.Table:
    from pyarrow import csv

    with csv.open_csv(path) as reader:
        names = reader.schema.names
    options = csv.ConvertOptions(
        include_columns=_wanted(path, stream, names),
        column_types=dict.fromkeys(names, pa.string()),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=[""],
    )
    return _declared(csv.read_csv(path, convert_options=options), stream, path)


def _json_lines(path: Path, stream: Stream) -> pa.Table:
    schema = stream.schema.append(pa.field(ARRIVAL, TIMESTAMP.arrow))
    tables = []
    rows: list[dict[str, object]] = []
    with_arrival: bool | None = None
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            event = parse_event(line, stream)
            if isinstance(event, Rejection):
                raise EventsError(
                    f"{event.reason}: {event.detail}", where=f"{path}: line {number}", remedy="Mend or remove the line"
                )
            arrival = _arrival_of(line)
            if with_arrival is None:
                with_arrival = arrival is not None
            elif with_arrival != (arrival is not None):
                raise EventsError(
                    f"{ARRIVAL} is there on some lines only",
                    where=f"{path}: line {number}",
                    remedy="Give it to every event, or to none",
                )
            rows.append({**event, ARRIVAL: arrival})
            if len(rows) == _JSON_LINES_AT_ONCE:
                tables.append(pa.Table.from_pylist(rows, schema))
                rows = []
    table = pa.concat_tables([*tables, pa.Table.from_pylist(rows, schema)])
    return table if with_arrival else table.drop_columns([ARRIVAL])


def _arrival_of(line: bytes) -> int | None:
    if b'"arrival_time"' not in line:
        return None
    value = json.loads(line).get(ARRIVAL)
    return parse_timestamp(value, zone_required=True) if isinstance(value, str) else None


def _wanted(path: Path, stream: Stream, names: list[str]) -> list[str]:
    for name in stream.fields:
        if name not in names:
            raise EventsError(
                f"has no column {name}, which stream {stream.name} declares",
                where=str(path),
                remedy=did_you_mean(name, names, "Its columns are") if names else "It is empty",
            )
    return [*stream.fields, *([ARRIVAL] if ARRIVAL in names else [])]


def _declared(table: pa.Table, stream: Stream, path: Path) -> pa.Table:
    kinds = {**stream.fields, ARRIVAL: TIMESTAMP}
    columns = {}
    for name in table.column_names:
        try:
            columns[name] = _as_declared(table[name], kinds[name])
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
            raise EventsError(
                f"cannot be read as {kinds[name]}: {_first_line(error)}",
                where=f"{path}: {name} ({table[name].type})",
                remedy="Change the file, or the field's type in the stream's declaration",
            ) from None
    return pa.table(columns)


def _as_declared(column: pa.ChunkedArray, declared: FieldType) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
        if pc.any(pc.is_inf(column)).as_py():
            raise ValueError("it holds an infinite value")
    if declared == STRING or column.type == declared.arrow:
        return column.cast(declared.arrow)
    if declared.kind is Kind.TIMESTAMP:
        return _timestamps(column)
    if declared.kind is Kind.DECIMAL:
        return _decimals(column, declared.arrow)
    if declared.kind is Kind.BOOLEAN and not pa.types.is_string(column.type):
        raise ValueError("it is no boolean")
    if declared.kind is Kind.DOUBLE:
        return column.cast(pa.float64(), safe=False)
    return column.cast(declared.arrow)


def _timestamps(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_integer(column.type):
        column = column.cast(pa.int64()).cast(pa.timestamp("ms"))
    elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        found = [None if text is None else parse_timestamp(text, zone_required=False) for text in column.to_pylist()]
        for text, value in zip(column.to_pylist(), found, strict=True):
            if text is not None and value is None:
                raise ValueError(f"{text!r} is no time")
        return pa.chunked_array([pa.array(found, pa.int64()).cast(TIMESTAMP.arrow)])
    elif not (pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)):
        raise ValueError("it is no time")
    zone = column.type.tz if pa.types.is_timestamp(column.type) else None
    # Nanoseconds are cut to microseconds, as in the stream.
    cut = column.cast(pa.timestamp("us", zone), safe=False)
    return cut.cast(TIMESTAMP.arrow) if zone else pc.assume_timezone(cut, "UTC")


def _decimals(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_floating(column.type):
        column = column.cast(pa.float64()).cast(pa.string())
    if pa.types.is_integer(column.type):
        column = column.cast(pa.decimal128(20, 0))
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.decimal128(38, max(kind.scale, 18)))
    if not pa.types.is_decimal(column.type):
        raise ValueError("it is no number")
    return column.cast(kind)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
