"""Reads events from Parquet, CSV or JSON lines files, or from a table, as a stream declares them.

`event_columns` converts the columns of Parquet and CSV; JSON lines are parsed as in the stream
(`nightjar/rules/events.py`). Columns that are not fields are ignored. An optional field without a column is NULL.
"""

import codecs
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote
from zoneinfo import ZoneInfo

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from nightjar.files.event_columns import MisfitError, as_declared
from nightjar.files.quotes import open_quote
from nightjar.rules.derived import with_derived
from nightjar.rules.errors import NightjarError
from nightjar.rules.event_values import JsonNumber, mistake, typed
from nightjar.rules.events import Reason, Rejection, parse_recorded, recorded_table
from nightjar.rules.names import did_you_mean
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import NO_ZONE, SECONDS_AS_MILLISECONDS, iso_text
from nightjar.rules.types import TIMESTAMP, FieldType

ARRIVAL = "arrival_time"

_JSON_LINES_AT_ONCE = 100_000
_ALL_OR_NONE = "Give it to every event, or to none"
_ZONE_REMEDY = "Write times with their zone; or, if all of them are of one, name it: `--zone UTC`, in Python zone='UTC'"
# What a table is called in errors.
_TABLE = "events"
# As Spark, Hive and Polars write NULL in the name of a folder.
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


class EventsError(NightjarError):
    """A file of events cannot be read, or does not match its stream's declaration."""


@dataclass(frozen=True)
class _Reading:
    """How files are read. zone: of times without one; arrivals: whether `arrival_time` is read, too."""

    stream: Stream
    zone: ZoneInfo | None
    arrivals: bool

    @property
    def kinds(self) -> dict[str, FieldType]:
        """The types of the columns to read."""
        return {**self.stream.recorded, **({ARRIVAL: TIMESTAMP} if self.arrivals else {})}


def read_events(path: Path, stream: Stream, *, zone: ZoneInfo | None = None, arrivals: bool = False) -> pa.Table:
    """Read the events of a file in their order, or of a folder's files in the order of their paths.

    The table has the stream's schema; with `arrivals` also `arrival_time` (timestamp us UTC), if the file has it. zone:
    of times that are written without one, which are refused otherwise.

    Raises:
        EventsError: the file cannot be read, lacks a field, or has an invalid value.
    """
    reading = _Reading(stream, zone, arrivals)
    if path.is_dir():
        return _folder(path, reading)
    if path.suffix.lower() not in _READERS:
        known = f"Supported extensions are {', '.join(_READERS)}"
        raise EventsError("has an unknown extension", where=str(path), remedy=known)
    if not path.is_file():
        raise EventsError("does not exist", where=str(path), remedy="Name a file of events, or a folder of such files")
    return _file(path, reading, {})


def columns_of(names: Sequence[str], stream: Stream) -> list[str]:
    """Those of a table's columns that are read.

    Raises:
        EventsError: a field that is not optional has no column, or one has several.
    """
    return _wanted(_TABLE, _Reading(stream, None, arrivals=False), [*names], {})


def events_of_table(table: pa.Table, stream: Stream, *, zone: ZoneInfo | None = None) -> pa.Table:
    """The events of a table in the order of its rows, with the stream's schema. zone: as in `read_events`.

    Raises:
        EventsError: the table lacks a field, or has an invalid value.
    """
    reading = _Reading(stream, zone, arrivals=False)
    chosen = table.select(columns_of(table.column_names, stream))
    return _complete(_declared(chosen, reading, _TABLE, {}), reading, _TABLE)


def doubtful_times(events: pa.Table, stream: Stream) -> str | None:
    """A warning if events seem to have epoch seconds, read as milliseconds."""
    if stream.event_time in stream.times:
        return None
    times, suspect = events[stream.event_time].cast(pa.int64()), SECONDS_AS_MILLISECONDS
    found = pc.and_(pc.greater_equal(times, suspect.start), pc.less(times, suspect.stop))
    if not (many := pc.sum(found).as_py()):
        return None
    instant = times[pc.index(found, value=True).as_py()].as_py()
    first, written = iso_text(instant), instant // 1000
    those = f"{many:,} of {events.num_rows:,} events have" if many < events.num_rows else "all events have"
    return (
        f"{those} an {stream.event_time} between 1970 and 1973, the first {first}: is {written} in seconds? "
        'Numbers are epoch milliseconds, if the stream does not declare unit = "s"'
    )


def _folder(folder: Path, reading: _Reading) -> pa.Table:
    """The events of a folder's files. Hidden ones, and those that writers put beside them (`_SUCCESS`), are skipped."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    parts = {path: path.relative_to(folder).parts for path in paths}
    files = [path for path in paths if not any(part.startswith((".", "_")) for part in parts[path])]
    if not files:
        remedy = f"Name a file, or a folder of files, that end in {', '.join(_READERS)}"
        raise EventsError("is a folder without files of events", where=str(folder), remedy=remedy)
    if other := next((path for path in files if path.suffix.lower() not in _READERS), None):
        remedy = f"Remove it from {folder}: supported extensions are {', '.join(_READERS)}"
        raise EventsError("has an unknown extension", where=str(other), remedy=remedy)
    tables = [_file(path, reading, _partition(parts[path][:-1])) for path in files]
    odd = next((at for at, table in enumerate(tables) if table.schema != tables[0].schema), None)
    if odd is not None:
        missing = files[odd] if ARRIVAL in tables[0].column_names else files[0]
        raise EventsError(f"has no {ARRIVAL}, which other files have", where=str(missing), remedy=_ALL_OR_NONE)
    return pa.concat_tables(tables)


def _partition(folders: Iterable[str]) -> dict[str, str | None]:
    """The columns that the names of folders hold, as in `country=de`."""
    named = (folder.partition("=") for folder in folders)
    return {
        unquote(name): None if value == _NULL_PARTITION else unquote(value) for name, found, value in named if found
    }


def _file(path: Path, reading: _Reading, given: Mapping[str, str | None]) -> pa.Table:
    """One file's events. given: the values of columns that the file may lack."""
    try:
        table = _READERS[path.suffix.lower()](path, reading, given)
    except (OSError, pa.ArrowInvalid) as error:
        raise EventsError(f"cannot be read: {first_line(error)}", where=str(path), remedy="Check its format") from None
    return _complete(table, reading, str(path))


def _complete(table: pa.Table, reading: _Reading, where: str) -> pa.Table:
    """The table; raises if an event lacks what every event has."""
    for name in (reading.stream.event_id, reading.stream.event_time, ARRIVAL):
        if name in table.column_names and table[name].null_count:
            row = pc.index(pc.is_null(table[name]), value=True).as_py()
            raise EventsError("is NULL", where=f"{where}: row {row + 1}: {name}", remedy="Every event needs one")
    if (row := pc.index(table[reading.stream.event_id], value="").as_py()) >= 0:
        place = f"{where}: row {row + 1}: {reading.stream.event_id}"
        raise EventsError("is empty", where=place, remedy="Every event needs one")
    return table


def _parquet(path: Path, reading: _Reading, given: Mapping[str, str | None]) -> pa.Table:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        names = file.schema_arrow.names
        wanted = _wanted(str(path), reading, names, given)
        return _declared(file.read(columns=wanted), reading, str(path), given)


def _csv(path: Path, reading: _Reading, given: Mapping[str, str | None]) -> pa.Table:
    from pyarrow import csv

    if (wrong := open_quote(path)) is not None:
        remedy = 'Close it, and double a quote within quotes: "a 5"" pipe"'
        raise EventsError(wrong[1], where=f"{path}: line {wrong[0]}", remedy=remedy)
    parsing = csv.ParseOptions(newlines_in_values=True)
    with csv.open_csv(path, parse_options=parsing) as reader:
        names = reader.schema.names
    options = csv.ConvertOptions(
        include_columns=_wanted(str(path), reading, names, given),
        column_types=dict.fromkeys(names, pa.string()),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=[""],
    )
    table = csv.read_csv(path, parse_options=parsing, convert_options=options)
    return _declared(table, reading, str(path), given)


def _json_lines(path: Path, reading: _Reading, _: Mapping[str, str | None]) -> pa.Table:
    schema = recorded_table([], reading.stream).schema.append(pa.field(ARRIVAL, TIMESTAMP.arrow))
    tables = []
    rows: list[dict[str, object]] = []
    with_arrival: bool | None = None
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            record = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
            if not record.strip():
                continue
            where = f"{path}: line {number}"
            event = parse_recorded(record, reading.stream, reading.zone)
            if isinstance(event, Rejection) and event.reason is Reason.IGNORED:
                continue
            if isinstance(event, Rejection):
                remedy = _ZONE_REMEDY if NO_ZONE in event.detail else "Fix or remove the line"
                raise EventsError(f"{event.reason}: {event.detail}", where=where, remedy=remedy)
            arrival = _arrival_of(record, reading, where)
            if with_arrival is None:
                with_arrival = arrival is not None
            elif with_arrival != (arrival is not None):
                raise EventsError(f"only some lines have {ARRIVAL}", where=where, remedy=_ALL_OR_NONE)
            rows.append({**event, ARRIVAL: arrival})
            if len(rows) == _JSON_LINES_AT_ONCE:
                tables.append(pa.Table.from_pylist(rows, schema))
                rows = []
    table = with_derived(pa.concat_tables([*tables, pa.Table.from_pylist(rows, schema)]), reading.stream)
    return table if with_arrival else table.drop_columns([ARRIVAL])


def _arrival_of(line: bytes, reading: _Reading, where: str) -> int | None:
    if not reading.arrivals or b'"arrival_time"' not in line:
        return None
    value = json.loads(line, parse_int=JsonNumber, parse_float=JsonNumber).get(ARRIVAL)
    if value is None:
        return None
    instant: int | None = typed(value, TIMESTAMP, reading.zone)
    if instant is None:
        why = mistake(value, TIMESTAMP, reading.zone)
        raise EventsError(f"{ARRIVAL} is {value!r:.80}: {why}", where=where, remedy="Fix or remove the line")
    return instant


_Reader = Callable[[Path, _Reading, Mapping[str, str | None]], pa.Table]
_READERS: dict[str, _Reader] = {".parquet": _parquet, ".csv": _csv, ".jsonl": _json_lines, ".ndjson": _json_lines}


def _wanted(where: str, reading: _Reading, names: list[str], given: Iterable[str]) -> list[str]:
    """Those of the columns that are read, or may be."""
    stream = reading.stream
    columns = {name: [column for column in _columns_of(name, stream) if column in names] for name in reading.kinds}
    for name in stream.recorded:
        if not columns[name] and name not in given and name not in stream.optional:
            raise EventsError(
                f"has no column {stream.shown_place(name)}, which stream {stream.name} declares",
                where=where,
                remedy=did_you_mean(name, names, "Its columns are") if names else "It is empty",
            )
    wanted = list(dict.fromkeys(column for of_field in columns.values() for column in of_field))
    if twice := [name for name in wanted if names.count(name) > 1]:
        what = f"has the column {twice[0]} {names.count(twice[0])} times"
        raise EventsError(what, where=where, remedy="Keep one of them, or rename the others")
    return wanted


def _columns_of(name: str, stream: Stream) -> tuple[str, str, str]:
    """The columns that a field may be in: that of its place, that in which its path begins, and that of its name."""
    path = stream.path(name)
    return str(path), str(path.steps[0]), name


def _values(table: pa.Table, name: str, stream: Stream) -> pa.ChunkedArray | None:
    """A field's values; NULL where its path leads nowhere, None if there is no column of it.

    Raises:
        ValueError: the column in which the path begins has no such places.
    """
    place, begin, _ = _columns_of(name, stream)
    path = stream.path(name)
    if place in table.column_names and not (place == begin and len(path.steps) > 1):
        return table[place]
    if len(path.steps) > 1 and begin in table.column_names and pa.types.is_nested(table[begin].type):
        found = pl.Series(table[begin])
        for step in path.steps[1:]:
            if isinstance(step, int) and isinstance(found.dtype, pl.List):
                found = found.list.get(step, null_on_oob=True)
            elif isinstance(step, int) and isinstance(found.dtype, pl.Array):
                found = found.arr.get(step, null_on_oob=True)
            elif isinstance(step, str) and isinstance(found.dtype, pl.Struct) and step in found.struct.fields:
                found = found.struct.field(step)
            else:
                raise ValueError(f"{begin} ({table[begin].type}) has no {path}")
        return pa.chunked_array([found.to_arrow(compat_level=pl.CompatLevel.oldest())])
    if name in table.column_names:
        return table[name]
    if begin in table.column_names:
        raise ValueError(f"{begin} ({table[begin].type}) has no {path}")
    return None


def _declared(table: pa.Table, reading: _Reading, where: str, given: Mapping[str, str | None]) -> pa.Table:
    """The fields in their declared types, from the columns of the table."""
    stream, columns = reading.stream, {}
    for name, kind in reading.kinds.items():
        try:
            values = _values(table, name, stream)
        except ValueError as failure:
            raise EventsError(str(failure), where=where, remedy=f"{name} is declared so; correct its `from`") from None
        if values is None and name in given:
            values = pa.chunked_array([pa.array([given[name]] * table.num_rows, pa.string())])
        if values is None:
            continue
        try:
            columns[name] = as_declared(values, kind, reading.zone, stream.times.get(name))
        except MisfitError as misfit:
            row = "" if misfit.row is None else f"row {misfit.row + 1}: "
            shown = "a value that is not shown" if name in stream.sensitive else f"{misfit.value!r:.80}"
            value = "" if misfit.row is None else f"{shown} "
            remedy = "Change the value, or the field's type in the stream's declaration"
            raise EventsError(
                f"{value}cannot be read as {kind}: {misfit}",
                where=f"{where}: {row}{name} ({values.type})",
                remedy=_ZONE_REMEDY if misfit.zone_missing else remedy,
            ) from None
    missing = stream.recorded.keys() - columns.keys()
    absent = {name: pa.nulls(table.num_rows, stream.fields[name].arrow) for name in missing}
    return stream.completed(with_derived(pa.table(columns | absent), stream))


def first_line(error: Exception) -> str:
    """What a library's error says, without its further lines."""
    return str(error).splitlines()[0]
