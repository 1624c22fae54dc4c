"""Reads events from Parquet, CSV or JSON lines files as a stream declares them.

`event_columns` converts the columns of Parquet and CSV; JSON lines are parsed as in the stream (`rules/events.py`).
Columns that are not fields are ignored, except `arrival_time`. An optional field without a column is NULL.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from nightjar.files.event_columns import MisfitError, as_declared
from rules.errors import NightjarError
from rules.events import Rejection, parse_event
from rules.names import did_you_mean
from rules.streams import Stream
from rules.types import TIMESTAMP

ARRIVAL = "arrival_time"

_JSON_LINES_AT_ONCE = 100_000


class EventsError(NightjarError):
    """A file of events cannot be read, or does not match its stream's declaration."""


def read_events(path: Path, stream: Stream) -> pa.Table:
    """Read a file's events in file order: the stream's schema, then `arrival_time` (timestamp us UTC) if present.

    Raises:
        EventsError: the file cannot be read, lacks a field, or has an invalid value.
    """
    readers: dict[str, Callable[[Path, Stream], pa.Table]] = {
        ".parquet": _parquet,
        ".csv": _csv,
        ".jsonl": _json_lines,
        ".ndjson": _json_lines,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise EventsError(
            "has an unknown extension", where=str(path), remedy=f"Supported extensions are {', '.join(readers)}"
        )
    if not path.is_file():
        raise EventsError("does not exist", where=str(path), remedy="Name a file of events")
    try:
        table = reader(path, stream)
    except (OSError, pa.ArrowInvalid) as error:
        raise EventsError(f"cannot be read: {_first_line(error)}", where=str(path), remedy="Check its format") from None
    for name in (stream.event_id, stream.event_time, ARRIVAL):
        if name in table.column_names and table[name].null_count:
            row = pc.index(pc.is_null(table[name]), value=True).as_py()
            raise EventsError("is NULL", where=f"{path}: row {row + 1}: {name}", remedy="Every event needs one")
    if (row := pc.index(table[stream.event_id], value="").as_py()) >= 0:
        raise EventsError("is empty", where=f"{path}: row {row + 1}: {stream.event_id}", remedy="Every event needs one")
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
                    f"{event.reason}: {event.detail}", where=f"{path}: line {number}", remedy="Fix or remove the line"
                )
            arrival = _arrival_of(line, f"{path}: line {number}")
            if with_arrival is None:
                with_arrival = arrival is not None
            elif with_arrival != (arrival is not None):
                raise EventsError(
                    f"only some lines have {ARRIVAL}",
                    where=f"{path}: line {number}",
                    remedy="Give it to every event, or to none",
                )
            rows.append({**event, ARRIVAL: arrival})
            if len(rows) == _JSON_LINES_AT_ONCE:
                tables.append(pa.Table.from_pylist(rows, schema))
                rows = []
    table = pa.concat_tables([*tables, pa.Table.from_pylist(rows, schema)])
    return table if with_arrival else table.drop_columns([ARRIVAL])


def _arrival_of(line: bytes, where: str) -> int | None:
    if b'"arrival_time"' not in line:
        return None
    value = json.loads(line).get(ARRIVAL)
    if value is None:
        return None
    try:
        times = as_declared(pa.chunked_array([[value]]), TIMESTAMP)
    except MisfitError as misfit:
        raise EventsError(f"{ARRIVAL} is {value!r}: {misfit}", where=where, remedy="Fix or remove the line") from None
    instant: int = times.cast(pa.int64())[0].as_py()
    return instant


def _wanted(path: Path, stream: Stream, names: list[str]) -> list[str]:
    for name in stream.fields:
        if name not in names and name not in stream.optional:
            raise EventsError(
                f"has no column {name}, which stream {stream.name} declares",
                where=str(path),
                remedy=did_you_mean(name, names, "Its columns are") if names else "It is empty",
            )
    return [name for name in (*stream.fields, ARRIVAL) if name in names]


def _declared(table: pa.Table, stream: Stream, path: Path) -> pa.Table:
    kinds = {**stream.fields, ARRIVAL: TIMESTAMP}
    columns = {}
    for name in table.column_names:
        try:
            columns[name] = as_declared(table[name], kinds[name])
        except MisfitError as misfit:
            row = "" if misfit.row is None else f"row {misfit.row + 1}: "
            value = "" if misfit.row is None else f"{misfit.value!r:.80} "
            raise EventsError(
                f"{value}cannot be read as {kinds[name]}: {misfit}",
                where=f"{path}: {row}{name} ({table[name].type})",
                remedy="Change the file, or the field's type in the stream's declaration",
            ) from None
    return stream.completed(pa.table(columns))


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
