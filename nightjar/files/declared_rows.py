"""Makes a stream's events of a table's columns, and leaves out the rows that cannot be used."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from nightjar.files.bad_lines import BadLines
from nightjar.files.errors import EventsError
from nightjar.files.event_columns import MisfitError, as_declared
from nightjar.rules.derived import with_derived
from nightjar.rules.event_values import MAX_STRING
from nightjar.rules.names import did_you_mean
from nightjar.rules.streams import Stream
from nightjar.rules.types import TIMESTAMP, FieldType, Kind

ARRIVAL = "arrival_time"
ZONE_REMEDY = "Write times with their zone; or, if all of them are of one, name it: `--zone UTC`, in Python zone='UTC'"


@dataclass(frozen=True)
class Reading:
    """How files are read. zone: of times without one; arrivals: whether `arrival_time` is read, too; coded: whether
    texts may stay dictionary-encoded."""

    stream: Stream
    zone: ZoneInfo | None
    arrivals: bool
    delimiter: str | None = None
    bad: BadLines = field(default_factory=BadLines)
    coded: bool = False

    @property
    def kinds(self) -> dict[str, FieldType]:
        """The types of the columns to read."""
        return {**self.stream.recorded, **({ARRIVAL: TIMESTAMP} if self.arrivals else {})}


def wanted_columns(where: str, reading: Reading, names: list[str], given: Iterable[str]) -> list[str]:
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


def numbered(row: int) -> str:
    """What a row of a table is called in errors."""
    return f"row {row + 1}"


class _EnoughError(Exception):
    """More lines are bad than may be."""


class _Refused:
    """The rows of a table that cannot be used, with what is wrong first in the order of columns."""

    def __init__(self, bad: BadLines) -> None:
        self._bad = bad
        self.rows: dict[int, Callable[[str], EventsError]] = {}

    def add(self, row: int, error: Callable[[str], EventsError]) -> None:
        """error: makes the error, with the place of the row."""
        self.rows.setdefault(row, error)
        if len(self.rows) > self._bad.room:
            raise _EnoughError

    def report(self, place: Callable[[int], str]) -> None:
        """Raises if there are too many."""
        for row in sorted(self.rows):
            self._report(row, place)

    def _report(self, row: int, place: Callable[[int], str]) -> None:
        self._bad.add(lambda: self.rows[row](place(row)))


def declared_events(
    table: pa.Table,
    reading: Reading,
    where: str,
    given: Mapping[str, str | None],
    place: Callable[[int], str],
) -> pa.Table:
    """The fields in their declared types, from the columns of the table; without the rows that cannot be used.

    place: what a row is called in errors, by its number from 0.
    """
    stream, columns = reading.stream, {}
    refused = _Refused(reading.bad)
    with suppress(_EnoughError):
        for name in reading.kinds:
            values = _column(table, name, reading, where, given)
            if values is not None:
                columns[name] = _converted(values, name, reading, where, refused)
        for name in (stream.event_id, stream.event_time, ARRIVAL):
            if name in columns:
                _refuse_absent(columns[name], name, refused)
        empty = pc.fill_null(pc.equal(columns[stream.event_id], ""), fill_value=False)
        for row in pc.indices_nonzero(empty).to_pylist():
            refused.add(row, _absent("is empty", stream.event_id))
    refused.report(lambda row: f"{where}: {place(row)}")
    missing = stream.recorded.keys() - columns.keys()
    absent = {name: pa.nulls(table.num_rows, stream.fields[name].arrow) for name in missing}
    events = pa.table(columns | absent)
    if refused.rows:
        used = np.ones(table.num_rows, np.bool_)
        used[list(refused.rows)] = False
        events = events.filter(pa.array(used))
    return stream.completed(with_derived(events, stream))


def _column(
    table: pa.Table, name: str, reading: Reading, where: str, given: Mapping[str, str | None]
) -> pa.ChunkedArray | None:
    try:
        values = _values(table, name, reading.stream)
    except ValueError as failure:
        raise EventsError(str(failure), where=where, remedy=f"{name} is declared so; correct its `from`") from None
    if values is None and name in given:
        return pa.chunked_array([pa.array([given[name]] * table.num_rows, pa.string())])
    return values


def _converted(values: pa.ChunkedArray, name: str, reading: Reading, where: str, refused: _Refused) -> pa.ChunkedArray:
    stream, kind = reading.stream, reading.kinds[name]
    if reading.coded and kind.kind is Kind.STRING and name != stream.event_id and _are_short_texts(values):
        return values
    if pa.types.is_binary(values.type):
        values = _text(values, name, refused)

    def error(place: str, misfit: MisfitError) -> EventsError:
        shown = "a value that is not shown" if name in stream.sensitive else f"{misfit.value!r:.80}"
        value = "" if misfit.row is None else f"{shown} "
        remedy = "Change the value, or the field's type in the stream's declaration"
        return EventsError(
            f"{value}cannot be read as {kind}: {misfit}",
            where=f"{place}: {name} ({values.type})",
            remedy=ZONE_REMEDY if misfit.zone_missing else remedy,
        )

    def misfits(misfit: MisfitError) -> None:
        if misfit.row is not None:
            refused.add(misfit.row, lambda place: error(place, misfit))

    try:
        return as_declared(values, kind, reading.zone, stream.times.get(name), misfits)
    except MisfitError as misfit:
        raise error(where, misfit) from None


def _are_short_texts(values: pa.ChunkedArray) -> bool:
    """Whether the column has a dictionary of texts of which none can be too long for a field."""
    kind = values.type
    if not (pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type)):
        return False
    texts = (chunk.dictionary for chunk in values.chunks)
    return not any(pc.any(pc.greater(pc.binary_length(each), MAX_STRING)).as_py() for each in texts)


def _text(values: pa.ChunkedArray, name: str, refused: _Refused) -> pa.ChunkedArray:
    """A binary column as text; what is no UTF-8 is NULL."""
    with suppress(pa.ArrowInvalid):
        return values.cast(pa.string())

    def error(place: str) -> EventsError:
        return EventsError("is not UTF-8", where=f"{place}: {name}", remedy="Write the file in UTF-8")

    texts: list[str | None] = []
    for row, value in enumerate(values.to_pylist()):
        try:
            texts.append(None if value is None else value.decode())
        except UnicodeDecodeError:
            refused.add(row, error)
            texts.append(None)
    return pa.chunked_array([pa.array(texts, pa.string())])


def _refuse_absent(column: pa.ChunkedArray, name: str, refused: _Refused) -> None:
    """Refuse the rows that lack what every event has."""
    for row in pc.indices_nonzero(pc.is_null(column)).to_pylist() if column.null_count else ():
        refused.add(row, _absent("is NULL", name))


def _absent(what: str, name: str) -> Callable[[str], EventsError]:
    return lambda place: EventsError(what, where=f"{place}: {name}", remedy="Every event needs one")
