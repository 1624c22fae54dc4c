"""The retained events of one stream, as columns of plain arrays: what timelines order and kernels read.

Rows are in the order of insertion, and row numbers are the codes of the event ids in their table, which is also the
check for duplicates. Physical values are int64 (numbers; decimals as scaled integers; timestamps and booleans as
integers; strings as codes of the field's table) or float64 (doubles). They are stored as int32 as long as all of a
column fit, and their validity once one is NULL.

Rows are evicted in two ways. A block is evicted once all its events are expired: its memory is released, and the other
rows keep their numbers. Or all expired rows are evicted at once, which renumbers the others. Values that timelines and
keys have read must not change then: the physical value of an event id is therefore a serial number, unique to its row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nightjar.rules.engine import memory
from nightjar.rules.engine.blocks import Blocks
from nightjar.rules.engine.columns import (
    Column,
    Mask,
    as_declared,
    columns_of,
    logical,
    narrow,
    physical,
    validity,
)
from nightjar.rules.engine.kernels.columns import least
from nightjar.rules.engine.keys import KeyTable
from nightjar.rules.engine.memory import RowArray, stretches
from nightjar.rules.engine.strings import Int32Array, Int64Array, StringTable
from nightjar.rules.engine.table_rows import TableRows
from nightjar.rules.errors import EvaluationError
from nightjar.rules.streams import Stream
from nightjar.rules.tables import Asked
from nightjar.rules.types import INSTANT, Kind

ARRIVAL = "arrival_time"
SEQ = "arrival_seq"
LATE = "late"
# The position up to which changes of tables were known when the event came (table_rows.py), where there are tables.
KNOWN = "$known"
LONG_AGO = -(1 << 62)  # event time (µs) before any event

# The limit of row numbers and codes.
_MOST_ROWS = (1 << 31) - 1
_NO_VALUES: Int64Array = np.empty(0, np.int64)
_NO_NULLS: Mask = np.empty(0, np.uint8)


class EventStore:
    """Columns of one stream's events, with their ids interned. tables: the rows of its tables, if it has some."""

    def __init__(self, stream: Stream, tables: TableRows | None = None) -> None:
        self.stream = stream
        self.tables = tables
        self.rows = 0
        self.ids = StringTable()
        # ranges of rows that are held, the last of which grows
        self.live: list[slice] = [slice(0, 0)]
        # how often a column has changed its type
        self.casts = 0
        self._tables: dict[str, StringTable] = {
            name: StringTable()
            for name, kind in stream.fields.items()
            if kind.kind is Kind.STRING and name != stream.event_id
        }
        self._columns = {
            name: Column(kind.kind, wide=name == stream.tiebreaker)
            for name, kind in stream.fields.items()
            if name != stream.event_id
        }
        if stream.tables:
            self._columns[KNOWN] = Column(Kind.INT64)
        self.room = 0  # rows that fit without moving any array
        # the serial numbers of rows, once they are needed: ascending over all rows, so none is ever released
        self._serials: RowArray | None = None
        self._next_serial = 0
        self._lateness = RowArray(np.int32)  # µs
        # a row's position among all arrivals when it was inserted, counted from _first_seq
        self._seq = RowArray(np.int32)
        self._first_seq = 0
        # if those differ: a batch may contain earlier arrivals than the rows here, if partitions are read unevenly
        self._order: RowArray | None = None
        self._late = RowArray(np.uint8)
        self.last_late = -1  # the greatest order of a late row
        self.newest = -1  # the greatest order of the rows behind which the last append inserted others
        self._blocks = Blocks()
        self._scratch: dict[tuple[str, ...], Int64Array] = {}
        self._keys: dict[tuple[str, ...], tuple[KeyTable, RowArray]] = {}

    @property
    def times(self) -> Int64Array:
        """Event time in microseconds, int64 (rows and room)."""
        return self._columns[self.stream.event_time].values

    @property
    def ties(self) -> tuple[Int64Array, Mask]:
        """What breaks ties of event times, and where that is NULL (rows and room); empty where nothing does, or is."""
        if self.stream.tiebreaker is None:
            return _NO_VALUES, _NO_NULLS
        column = self._columns[self.stream.tiebreaker]
        return column.values, _NO_NULLS if column.null is None else column.null.all

    @property
    def late(self) -> Mask:
        """Which rows came late: uint8 (rows and room)."""
        return self._late.all

    @property
    def order(self) -> npt.NDArray[Any]:
        """Each row's position among all arrivals: int32, or int64 (rows and room)."""
        return (self._order or self._seq).all

    def lateness(self, rows: Int64Array | slice) -> npt.NDArray[Any]:
        """How long after they happened the rows arrived, in µs."""
        return self._lateness.all[rows]

    def arrival(self, rows: Int64Array | slice) -> Int64Array:
        """When the rows arrived, in µs."""
        arrived: Int64Array = self.times[rows] + self.lateness(rows)
        return arrived

    def unseen(self, ids: pa.Array, since: Int64Array | int) -> Int64Array:
        """Indices of the first arrivals among ids, in order; they get the rows from `self.rows` on.

        since: event time (µs), one for all or one per id; a held event before it does not count as an arrival.
        """
        before = self.ids.count
        codes = self.ids.intern(ids)
        held = (codes < before).nonzero()[0]
        if len(held) and len(again := held[self.times[codes[held]] < np.broadcast_to(since, len(codes))[held]]):
            self.ids.unindex(np.unique(codes[again]))
            self.ids.cut(before)
            codes = self.ids.intern(ids)
        fresh = np.arange(len(codes)) if not len(held) else (codes >= before).nonzero()[0]
        if len(fresh) > self.ids.count - before:
            fresh = fresh[np.unique(codes[fresh], return_index=True)[1]]
        return fresh.astype(np.int64, copy=False)

    @property
    def superseded(self) -> Int64Array:
        """The rows whose ids have been admitted again, because they were before the horizon by then."""
        return self.ids.unindexed

    def append(
        self, events: Mapping[str, pa.Array], arrival: Int64Array, seq: Int64Array, late: Mask, *, placing: bool = True
    ) -> None:
        """Insert rows whose ids `unseen` has just admitted, in the same order. events: the stream's fields; placing:
        all of `seq` are above those of the rows here; otherwise call `place_all` after the last such rows."""
        old, new = self.rows, self.rows + len(seq)
        if new > _MOST_ROWS:
            raise OverflowError(f"an engine holds at most {_MOST_ROWS:,} events")
        if new > self.room:
            self._have_room(new)
        rows = slice(old, new)
        self.live[-1] = slice(self.live[-1].start, new)
        for name, column in self._columns.items():
            array = events[name]
            values = self._tables[name].intern(array) if column.kind is Kind.STRING else physical(array, column.kind)
            self.casts += column.put(rows, values, validity(array) if array.null_count else None, self.live)
        if self._serials is not None:
            self._serials.all[rows] = np.arange(self._next_serial, self._next_serial + new - old)
            self._next_serial += new - old
        self._late.all[rows] = late
        narrow(self._lateness, rows, arrival - self.times[rows], self.live)
        self.rows = new
        if new > old:
            self._number(rows, seq)
            if placing:
                self._place(old, new, arrival)
            self._blocks.append(old, arrival, self.times[rows])
        for fields, (table, codes) in self._keys.items():
            codes.all[rows] = self._encode(fields, table, rows)

    def reserve(self, events: int) -> None:
        """Make room for so many more events at once, and for some that come after them: room takes no memory until it
        is used, and without it the next event would move everything."""
        events += events // 8
        self._have_room(self.rows + events)
        self.ids.reserve(events)

    def _have_room(self, rows: int) -> None:
        for array in self._released:
            array.reserve(rows, self.live)
        if self._serials is not None:
            self._serials.reserve(rows, [slice(0, self.rows)])
        self.room = min(len(array.all) for array in self._arrays)

    @property
    def _released(self) -> list[RowArray]:
        """The arrays with one element per row whose content of released rows goes: all but the table of ids, and the
        serial numbers, among which rows are searched."""
        order = [] if self._order is None else [self._order]
        of_columns = [array for column in self._columns.values() for array in column.arrays]
        of_keys = [codes for _, codes in self._keys.values()]
        return [*of_columns, *order, self._lateness, self._seq, self._late, *of_keys]

    @property
    def _arrays(self) -> list[RowArray]:
        """All arrays with one element per row, except the table of ids."""
        return self._released if self._serials is None else [*self._released, self._serials]

    def _number(self, rows: slice, seq: Int64Array) -> None:
        first, _ = least(seq)
        if rows.start == 0:
            self._first_seq = first
        elif first < self._first_seq:
            self._count_from(first)
        relative = seq - self._first_seq
        narrow(self._seq, rows, relative, self.live)
        if self._order is not None:
            narrow(self._order, rows, relative, self.live)

    def _count_from(self, first: int) -> None:
        """Change the first position among the arrivals."""
        shift = self._first_seq - first
        for array in filter(None, (self._seq, self._order)):
            shifted = [array.all[rows].astype(np.int64) + shift for rows in self.live]
            array.cast(np.int32, ())
            for rows, values in zip(self.live, shifted, strict=True):
                narrow(array, rows, values, self.live)
        self.last_late = self.last_late + shift if self.last_late >= 0 else -1
        self._first_seq = first

    def _place(self, old: int, new: int, arrival: Int64Array) -> None:
        """Give the new rows their positions among all arrivals; rows that arrived after one of them move behind it."""
        first, is_sorted = least(arrival)
        self.newest = -1
        placed: Int64Array | slice = slice(old, new)
        if first < self._blocks.arrived or not is_sorted:
            behind = self._arrived_after(first, old)
            placed = np.append(behind, np.arange(old, new))
            self._put_in_order(placed)
            self.newest = int(self.order[behind].max(initial=-1))
        self._note_late(placed)

    def place_all(self) -> None:
        """Give all rows their positions among all arrivals, after rows that were appended in any order."""
        rows = self.live[0] if len(self.live) == 1 else self.held(0, self.rows)
        self._put_in_order(rows)
        self._note_late(rows)

    def _put_in_order(self, rows: Int64Array | slice) -> None:
        """Distribute the rows' positions among them again, by arrival and then by `seq`."""
        seq = self._seq.all[rows]
        by_arrival = np.lexsort((seq, self.arrival(rows)))
        positions = np.sort(self.order[rows])
        if self._order is None:
            if np.array_equal(positions, seq[by_arrival]):
                return
            self._order = RowArray(self._seq.all.dtype)
            self._order.reserve(self.room, ())
            for live in self.live:
                self._order.all[live] = self._seq.all[live]
        placed = np.empty_like(positions)
        placed[by_arrival] = positions
        self._order.all[rows] = placed

    def _note_late(self, rows: Int64Array | slice) -> None:
        if np.count_nonzero(late := self.late[rows]):
            self.last_late = max(self.last_late, int(self.order[rows][late != 0].max()))

    def held(self, first: int, last: int) -> Int64Array:
        """The rows from `first` to below `last` that have not been released."""
        parts = [np.arange(rows.start, rows.stop) for rows in self._ranges(first, last)]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def _arrived_after(self, time: int, last: int) -> Int64Array:
        """The rows below `last` that arrived after this time (µs) and have not been released."""
        ranges = [rows for near in self._blocks.after(time) for rows in self._ranges(near.start, min(near.stop, last))]
        parts = [rows.start + np.flatnonzero(self.arrival(rows) > time) for rows in ranges]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def _ranges(self, first: int, last: int) -> list[slice]:
        """The ranges of rows from `first` to below `last` that have not been released."""
        live = [slice(max(rows.start, first), min(rows.stop, last)) for rows in self.live]
        return [rows for rows in live if rows.start < rows.stop]

    def holds(self, rows: Int64Array) -> npt.NDArray[np.bool_]:
        """Which of the rows have not been released."""
        held: npt.NDArray[np.bool_] = np.zeros(len(rows), np.bool_)
        for live in self.live:
            held |= (rows >= live.start) & (rows < live.stop)
        return held

    def since(self, time: int) -> Int64Array:
        """The rows from this event time (µs) on."""
        return np.concatenate([rows.start + np.flatnonzero(self.times[rows] >= time) for rows in self.live])

    def between(self, since: int, until: int) -> Int64Array:
        """The rows from one event time (µs) on that are before another."""
        rows = self.since(since)
        return rows[self.times[rows] < until]

    def count_since(self, time: int) -> int:
        """How many rows are from this event time (µs) on."""
        return sum(int(np.count_nonzero(self.times[rows] >= time)) for rows in self.live)

    def gone(self, first: int, horizon: int) -> npt.NDArray[np.bool_] | None:
        """Which of the rows from `first` on are before this event time (µs) or released; None if none is."""
        gone: npt.NDArray[np.bool_] = self.times[first : self.rows] < horizon
        if first < self.live[-1].start:
            gone[:] = True
            rows = self.held(first, self.rows)
            gone[rows - first] = self.times[rows] < horizon
        return gone if np.count_nonzero(gone) else None

    def release(self, horizon: int) -> list[slice]:
        """Release the memory of full blocks of rows before this event time (µs); returns what others may release.

        These rows must not be read afterwards.
        """
        full = self.rows // memory.BLOCK
        over = self._blocks.expire(full, horizon)
        if not over:
            return []
        held = self._blocks.held(full)
        self.live = [*stretches(held), slice(full * memory.BLOCK, self.rows)]
        if len(self.live) > 1 and self.live[-2].stop == full * memory.BLOCK:
            self.live[-2:] = [slice(self.live[-2].start, self.rows)]
        released = stretches(over)
        for rows in released:
            self.ids.release(rows, self.live)
            for array in self._released:
                array.release(rows)
        return released

    @property
    def resident(self) -> int:
        """How many rows have not been released."""
        return sum(rows.stop - rows.start for rows in self.live)

    def keep(self, rows: Int64Array) -> None:
        """Drop all but these rows (ascending); they become 0, 1, … Codes of fields stay as they are."""
        for array in self._arrays:
            array.keep(rows)
        self.ids.keep(rows)
        self.rows, self.live = len(rows), [slice(0, len(rows))]
        self.room = min(len(array.all) for array in self._arrays)
        self._blocks = Blocks()
        if self.rows:
            self._blocks.append(0, self.arrival(self.live[0]), self.times[: self.rows])
            least = min(int(array.all[: self.rows].min()) for array in (self._seq, self._order) if array is not None)
            self._count_from(self._first_seq + least)

    @property
    def codes_given(self) -> int:
        """The largest number of codes of any field or tuple of fields."""
        tables = [table.count for table in self._tables.values()]
        return max(tables + [table.count for table, _ in self._keys.values()], default=0)

    def codes(self, fields: tuple[str, ...]) -> Int32Array:
        """A dense code per row for the tuple of the fields' values, -1 where one is NULL; () is one code for all."""
        if len(fields) == 1 and fields[0] in self._tables:
            return self._columns[fields[0]].values
        if fields not in self._keys:
            table, codes = KeyTable(len(fields)), RowArray(np.int32)
            codes.reserve(len(self._late.all), ())
            for rows in self.live:
                codes.all[rows] = self._encode(fields, table, rows)
            self._keys[fields] = table, codes
        return self._keys[fields][1].all

    def code_count(self, fields: tuple[str, ...]) -> int:
        """The number of codes that `codes` has assigned."""
        if len(fields) == 1 and fields[0] in self._tables:
            return self._tables[fields[0]].count
        self.codes(fields)
        return self._keys[fields][0].count

    def scratch(self, fields: tuple[str, ...]) -> Int64Array:
        """An int64 per code of the fields, all -1; whoever writes to it must restore that."""
        held, count = self._scratch.get(fields), self.code_count(fields)
        if held is None or len(held) < count:
            held = self._scratch[fields] = np.full(max(64, 2 * count), -1, np.int64)
        return held

    def _encode(self, fields: tuple[str, ...], table: KeyTable, rows: slice) -> Int64Array:
        if not fields:
            table.count = 1
            return np.zeros(rows.stop - rows.start, np.int64)
        values = np.stack([self.physical(field, rows).view(np.int64) for field in fields], axis=1)
        valid = [valid for field in fields if (valid := self.valid(field, rows)) is not None]
        return table.encode(values, np.logical_and.reduce(valid) if valid else np.ones(len(values), np.bool_))

    def encode(self, fields: tuple[str, ...], values: list[pa.Array], rows: int) -> Int64Array:
        """The codes, as `codes`, of so many tuples of the fields' values, of which none is NULL.

        The event's id is not among the fields.
        """
        self.codes(fields)
        columns = [
            self._tables[name].intern(array) if name in self._tables else physical(array, self.stream.fields[name].kind)
            for name, array in zip(fields, values, strict=True)
        ]
        if fields not in self._keys:
            return np.asarray(columns[0], np.int64)
        if not fields:
            self._keys[fields][0].count = 1
            return np.zeros(rows, np.int64)
        keys = np.stack([_words(column) for column in columns], axis=1)
        return self._keys[fields][0].encode(keys, np.ones(rows, np.bool_))

    def decode(self, fields: tuple[str, ...], codes: Int64Array) -> list[pa.Array]:
        """The values of the fields, in their declared types, of codes that `codes` has assigned."""
        if fields not in self._keys:
            return [self.strings(fields[0], codes)]
        keys = self._keys[fields][0].keys(codes)
        return [self._value(name, keys[:, at]) for at, name in enumerate(fields)]

    def _value(self, name: str, values: Int64Array) -> pa.Array:
        kind = self.stream.fields[name]
        if kind.kind is Kind.STRING:
            return self.strings(name, values)
        values = np.ascontiguousarray(values)
        return logical(values.view(np.float64) if kind.kind is Kind.DOUBLE else values, None, kind)

    def source(self, name: str) -> npt.NDArray[Any]:
        """The field's physical values as stored: int32, int64 or float64 (rows and room)."""
        if name != self.stream.event_id:
            return self._columns[name].values
        if self._serials is None:
            self._serials = RowArray(np.int64)
            self._serials.reserve(len(self._late.all), ())
            self._serials.all[: self.rows] = np.arange(self.rows)
            self._next_serial = self.rows
        return self._serials.all

    def physical(self, name: str, rows: Int64Array | slice) -> npt.NDArray[Any]:
        """Physical values: int64 or float64."""
        values = self.source(name)[rows]
        return values.astype(np.int64) if values.dtype == np.int32 else values

    def valid(self, name: str, rows: Int64Array | slice) -> Mask | None:
        """uint8, 0 where the field is NULL; None if it never is."""
        return None if name == self.stream.event_id else self._columns[name].valid(rows)

    def array(self, name: str, rows: Int64Array) -> pa.Array:
        """The field's values of the rows, in the declared type."""
        kind = self.stream.fields[name]
        if name == self.stream.event_id:
            return self.ids.strings(rows)
        values = self.physical(name, rows)
        if kind.kind is Kind.STRING:
            return self.strings(name, values)
        return logical(values, self.valid(name, rows), kind)

    def of_table(self, asked: Asked, rows: Int64Array | slice) -> pa.Array:
        """What the table had for the field's value at each row's event, as TableRows.column has it."""
        if self.tables is None or asked.table not in self.tables:
            raise EvaluationError(
                "a rule asks it, and its rows are not given",
                where=f"table {asked.table}",
                remedy="Give them: `nightjar evaluate` takes --table, and a case has `tables`",
            )
        at = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        return self.tables.column(asked, self.array(asked.field, at), self.times[at], self.physical(KNOWN, at))

    def texts(self, name: str) -> StringTable:
        """The table of a string field's physical values; not of the event id's."""
        return self._tables[name]

    def strings(self, name: str, values: Int64Array) -> pa.Array:
        """large_string of the physical values of a string field, -1 for NULL. An event id's row must be held."""
        if name != self.stream.event_id:
            return self._tables[name].strings(values)
        rows = np.searchsorted(self.source(name)[: self.rows], values)
        return self.ids.strings(np.where(values < 0, -1, rows))

    def table(self, rows: Int64Array) -> pa.Table:
        """The events of the rows as received, with arrival_time, arrival_seq and late."""
        columns = {
            name: array if array.type == pa.large_string() else array.cast(kind.arrow)
            for name, kind in self.stream.fields.items()
            for array in (self.array(name, rows),)
        }
        columns[ARRIVAL] = pa.array(self.arrival(rows)).cast(INSTANT)
        if self.stream.tables:
            columns[KNOWN] = pa.array(self.physical(KNOWN, rows))
        columns[SEQ] = pa.array(self._seq.all[rows].astype(np.int64) + self._first_seq)
        columns[LATE] = pa.array(self.late[rows].astype(np.bool_))
        return as_declared(columns)


def _words(values: npt.NDArray[Any]) -> Int64Array:
    """Physical values as the words that keys consist of."""
    return values.view(np.int64) if values.dtype == np.float64 else values.astype(np.int64)


def in_arrival_order(events: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[str, pa.Array], Int64Array | None]:
    """Rows sorted by arrival time, then partition and offset if given, then position; their columns by name; and the
    earlier position of each, None if they were in this order."""
    columns = columns_of(events)
    arrival = physical(columns[ARRIVAL], Kind.TIMESTAMP)
    if not np.count_nonzero(arrival[1:] <= arrival[:-1]):
        return events, columns, None
    others = (columns[name].to_numpy(zero_copy_only=False) for name in ("offset", "partition") if name in columns)
    places = np.lexsort([*others, arrival])
    if (places[1:] > places[:-1]).all():
        return events, columns, None
    events = events.take(pa.array(places))
    return events, columns_of(events), places
