"""Reads events from Parquet, CSV or JSON files, or from a table, as a stream declares them.

`opening` decompresses, `csv_rows` and `json_records` split files of text into rows and records. `declared_rows` makes
events of the columns of Parquet and CSV; JSON is parsed as in the stream (`nightjar/rules/events.py`). Columns that are
not fields are ignored. An optional field without a column is NULL.

The content of a file is never held as a whole: of CSV and JSON a block at a time is read and converted.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from nightjar.files.bad_lines import BadLines
from nightjar.files.csv_rows import KINDS as CSV
from nightjar.files.csv_rows import CsvFile, shown_delimiter
from nightjar.files.declared_rows import ARRIVAL, ZONE_REMEDY, Reading, declared_events, numbered, wanted_columns
from nightjar.files.errors import EventsError, first_line
from nightjar.files.json_records import ANY as JSON
from nightjar.files.json_records import LINES as JSON_LINES
from nightjar.files.json_records import json_records
from nightjar.files.opening import GZIP, is_compressed, kind_of
from nightjar.rules.derived import with_derived
from nightjar.rules.event_values import mistake, typed
from nightjar.rules.events import Reason, Rejection, parse_recorded, read_json, recorded_table
from nightjar.rules.streams import Stream, UnionMember
from nightjar.rules.timestamps import NO_ZONE, SECONDS_AS_MILLISECONDS, iso_text
from nightjar.rules.types import TIMESTAMP
from nightjar.rules.unions import united

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_PARQUET = ".parquet"
_TEXT = (*CSV, *JSON_LINES, JSON)
_KINDS = (_PARQUET, *_TEXT)
_KNOWN = f"Supported extensions are {', '.join(_KINDS)}; and {GZIP} after those of text, as in .csv{GZIP}"
# What the folder of a table has beside its files, of which some do not count any more.
_LOGS = {"_delta_log": "Delta", "_hudi": "Hudi", ".hoodie": "Hudi"}

_RECORDS_AT_ONCE = 100_000
# What a text takes at most in a file where most come again: the number of one in a dictionary of some millions.
_FEW_BYTES = 4
_ALL_OR_NONE = "Give it to every event, or to none"
# What a table is called in errors.
_TABLE = "events"
# As Spark, Hive and Polars write NULL in the name of a folder.
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


def read_events(
    path: Path,
    stream: Stream,
    *,
    zone: ZoneInfo | None = None,
    arrivals: bool = False,
    delimiter: str | None = None,
    bad: BadLines | None = None,
    coded: bool = False,
) -> pa.Table:
    """Read the events of a file in their order, or of a folder's files in the order of their paths.

    Of a union the path is a folder that has a file or folder for each of its streams, named as that is in the union.

    The table has the stream's schema; with `arrivals` also `arrival_time` (timestamp us UTC), if the file has it. zone:
    of times that are written without one, which are refused otherwise. delimiter: of CSV, one character; None: a tab in
    `.tsv`, else a comma. bad: takes the lines that cannot be used; None: the first is an error. coded: leave texts that
    a file of Parquet has by dictionary so, where most of them come again: an engine takes half as long to read them.

    Raises:
        EventsError: the file cannot be read, lacks a field, or has an invalid value.
    """
    if stream.members:
        options: dict[str, Any] = {"zone": zone, "arrivals": arrivals, "delimiter": delimiter, "bad": bad}
        read = ((of, read_events(_of_member(path, of, stream), of.stream, **options)) for of in stream.members)
        return united([(of, table) for of, table in read], stream)
    reading = Reading(stream, zone, arrivals, delimiter, BadLines() if bad is None else bad)
    if path.is_dir():
        return _folder(path, reading)
    if coded and not stream.derived:  # what is derived is calculated of plain columns
        reading = replace(reading, coded=True)
    _refuse_unknown(path, _KNOWN)
    if not path.is_file():
        raise EventsError("does not exist", where=str(path), remedy="Name a file of events, or a folder of such files")
    if delimiter is not None and kind_of(path) not in CSV:
        raise EventsError(
            "has no delimiter", where=str(path), remedy=f"Leave out --delimiter, which is for {_any(CSV)}"
        )
    return _file(path, reading, {})


def _of_member(path: Path, member: UnionMember, union: Stream) -> Path:
    """The file or folder in the folder that has a member's events."""
    found = sorted(each for each in path.iterdir() if each.name.split(".")[0] == member.alias) if path.is_dir() else []
    if len(found) == 1:
        return found[0]
    names = ", ".join(f"{of.alias}.csv" for of in union.members)
    what = "is not a folder" if not path.is_dir() else f"has {len(found) or 'no'} files of {member.alias}"
    raise EventsError(
        what, where=str(path), remedy=f"Name a folder with a file, or folder, for each stream of {union.name}: {names}"
    )


def _any(kinds: Sequence[str]) -> str:
    return f"{', '.join(kinds[:-1])} and {kinds[-1]}"


def _refuse_unknown(path: Path, remedy: str) -> None:
    kind = kind_of(path)
    if kind == _PARQUET and is_compressed(path):
        what = "is a compressed file of Parquet, which is compressed within"
        raise EventsError(
            what, where=str(path), remedy=f"Decompress it with `gunzip`, and leave {GZIP} out of its name"
        )
    if kind not in _KINDS:
        raise EventsError("has an unknown extension", where=str(path), remedy=remedy)


def columns_of(names: Sequence[str], stream: Stream) -> list[str]:
    """Those of a table's columns that are read.

    Raises:
        EventsError: a field that is not optional has no column, or one has several.
    """
    return wanted_columns(_TABLE, Reading(stream, None, arrivals=False), [*names], {})


def events_of_table(table: pa.Table, stream: Stream, *, zone: ZoneInfo | None = None) -> pa.Table:
    """The events of a table in the order of its rows, with the stream's schema. zone: as in `read_events`.

    Raises:
        EventsError: the table lacks a field, or has an invalid value.
    """
    reading = Reading(stream, zone, arrivals=False)
    chosen = table.select(columns_of(table.column_names, stream))
    return declared_events(chosen, reading, _TABLE, {}, numbered)


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


def _folder(folder: Path, reading: Reading) -> pa.Table:
    """The events of a folder's files. Hidden ones, and those that writers put beside them (`_SUCCESS`), are skipped."""
    for log, of in _LOGS.items():
        if (folder / log).exists():
            remedy = "Read it with a program that knows its log, and write its rows to a folder of Parquet"
            raise EventsError(
                f"is a table of {of}, some of whose files may not count", where=str(folder), remedy=remedy
            )
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    parts = {path: path.relative_to(folder).parts for path in paths}
    files = [path for path in paths if not any(part.startswith((".", "_")) for part in parts[path])]
    if not files:
        remedy = f"Name a file, or a folder of files, that end in {', '.join(_KINDS)}"
        raise EventsError("is a folder without files of events", where=str(folder), remedy=remedy)
    for path in files:
        _refuse_unknown(path, f"Remove it from {folder}. {_KNOWN}")
    read = [(path, _file(path, reading, _partition(parts[path][:-1]))) for path in files]
    # a file without events does not show whether its events have an arrival
    read = [(path, table) for path, table in read if table.num_rows] or read[:1]
    first, schema = read[0][0], read[0][1].schema
    if (odd := next((path for path, table in read if table.schema != schema), None)) is not None:
        missing = odd if ARRIVAL in schema.names else first
        raise EventsError(f"has no {ARRIVAL}, which other files have", where=str(missing), remedy=_ALL_OR_NONE)
    return pa.concat_tables([table for _, table in read])


def _partition(folders: Iterable[str]) -> dict[str, str | None]:
    """The columns that the names of folders hold, as in `country=de`."""
    named = (folder.partition("=") for folder in folders)
    return {
        unquote(name): None if value == _NULL_PARTITION else unquote(value) for name, found, value in named if found
    }


def _file(path: Path, reading: Reading, given: Mapping[str, str | None]) -> pa.Table:
    """One file's events. given: the values of columns that the file may lack."""
    try:
        kind = kind_of(path)
        if kind == _PARQUET:
            return _parquet(path, reading, given)
        return _csv(path, reading, given) if kind in CSV else _json(path, reading)
    except (OSError, pa.ArrowInvalid) as error:
        raise EventsError(f"cannot be read: {first_line(error)}", where=str(path), remedy="Check its format") from None


def _parquet(path: Path, reading: Reading, given: Mapping[str, str | None]) -> pa.Table:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        names = file.schema_arrow.names
        wanted = wanted_columns(str(path), reading, names, given)
        coded = _repeating(file, wanted) if reading.coded else []
    with pq.ParquetFile(path, metadata=file.metadata, read_dictionary=coded) as file:
        return declared_events(file.read(columns=wanted), reading, str(path), given, numbered)


def _repeating(file: "pq.ParquetFile", names: Collection[str]) -> list[str]:
    """Those of the columns whose texts take so few bytes in the file that most must be by dictionary."""
    sizes = {field.name: 0 for field in file.schema_arrow if field.name in names and pa.types.is_string(field.type)}
    groups = [file.metadata.row_group(at) for at in range(file.metadata.num_row_groups)]
    for column in (group.column(at) for group in groups for at in range(group.num_columns)):
        if column.path_in_schema in sizes:
            sizes[column.path_in_schema] += column.total_uncompressed_size
    return [name for name, size in sizes.items() if size < _FEW_BYTES * file.metadata.num_rows]


def _csv(path: Path, reading: Reading, given: Mapping[str, str | None]) -> pa.Table:
    file = CsvFile(path, reading.delimiter)
    try:
        wanted = wanted_columns(str(path), reading, file.names, given)
    except EventsError:
        if (other := file.another_delimiter()) is None:
            raise
        what = f"has a single column by the delimiter {shown_delimiter(file.delimiter)}"
        raise EventsError(what, where=str(path), remedy=f"Try --delimiter {shown_delimiter(other)}") from None

    def malformed() -> EventsError:
        line, cells = file.next_malformed()
        what = f"has {cells} columns, and the header has {len(file.names)}"
        return EventsError(what, where=f"{path}: line {line}", remedy="Fix or remove the line, or quote the value")

    tables, rows = [], 0
    for block in file.blocks(wanted, lambda: reading.bad.add(malformed)):
        place = partial(_line, file, rows)
        tables.append(declared_events(block, reading, str(path), given, place))
        rows += block.num_rows
    return pa.concat_tables(tables)


def _line(file: CsvFile, before: int, row: int) -> str:
    return f"line {file.line_of(before + row)}"


def _json(path: Path, reading: Reading) -> pa.Table:
    schema = recorded_table([], reading.stream).schema.append(pa.field(ARRIVAL, TIMESTAMP.arrow))
    tables = []
    rows: list[dict[str, object]] = []
    with_arrival: bool | None = None
    for number, record in json_records(path):
        where = f"{path}: line {number}"
        event = parse_recorded(record, reading.stream, reading.zone)
        if isinstance(event, Rejection):
            if event.reason is not Reason.IGNORED:
                remedy = ZONE_REMEDY if NO_ZONE in event.detail else "Fix or remove the line"
                wrong = EventsError(f"{event.reason}: {event.detail}", where=where, remedy=remedy)
                _leave_out(wrong, reading)
            continue
        try:
            arrival = _arrival_of(record, reading, where)
        except EventsError as error:
            _leave_out(error, reading)
            continue
        if with_arrival is None:
            with_arrival = arrival is not None
        elif with_arrival != (arrival is not None):
            raise EventsError(f"only some lines have {ARRIVAL}", where=where, remedy=_ALL_OR_NONE)
        rows.append({**event, ARRIVAL: arrival})
        if len(rows) == _RECORDS_AT_ONCE:
            tables.append(pa.Table.from_pylist(rows, schema))
            rows = []
    table = with_derived(pa.concat_tables([*tables, pa.Table.from_pylist(rows, schema)]), reading.stream)
    return table if with_arrival else table.drop_columns([ARRIVAL])


def _leave_out(error: EventsError, reading: Reading) -> None:
    reading.bad.add(lambda: error)


def _arrival_of(line: bytes, reading: Reading, where: str) -> int | None:
    if not reading.arrivals or b'"arrival_time"' not in line:
        return None
    value = read_json(line.decode()).get(ARRIVAL)
    if value is None:
        return None
    instant: int | None = typed(value, TIMESTAMP, reading.zone)
    if instant is None:
        why = mistake(value, TIMESTAMP, reading.zone)
        raise EventsError(f"{ARRIVAL} is {value!r:.80}: {why}", where=where, remedy="Fix or remove the line")
    return instant
