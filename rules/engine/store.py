"""The retained events of one stream, as columns of plain arrays: what timelines order and kernels read.

Rows stand in the order they were taken in and row numbers are the codes of the event ids in their table, which is also
the check for duplicates. Physical columns are int64 (numbers; decimals as scaled integers; timestamps and booleans as
integers; strings as codes of the field's table) or float64 (doubles), each beside a uint8 column, 0 for NULL. Row
numbers change when rows are forgotten, what timelines and keys have read off columns may not: an event id's physical
value is therefore the row's serial number, which no other row is ever given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rules.engine.keys import KeyTable
from rules.engine.strings import Int64Array, StringTable, grown
from rules.streams import Stream
from rules.types import FieldType, Kind

ARRIVAL = "arrival_time"
SEQ = "arrival_seq"
LATE = "late"
LONG_AGO = -(1 << 62)  # event time (µs) before any event
MICROSECONDS = pa.timestamp("us", "UTC")
Mask = npt.NDArray[np.uint8]


# Bytes that Arrow can hold in one array of strings; beyond it takes an array of large_string.
_LARGEST_TEXT = (1 << 31) - 1
_WIDE = pa.large_string().id


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """The table as one contiguous batch; columns of strings that are too large for that become large_string."""
    # asked first, as it takes no time: what the columns are slices of
    large = table.get_total_buffer_size() > _LARGEST_TEXT
    for at, column in enumerate(table.columns if large else ()):
        if column.type == pa.string() and column.nbytes > _LARGEST_TEXT:
            table = table.set_column(at, table.field(at).with_type(pa.large_string()), column.cast(pa.large_string()))
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)


def as_declared(batch: pa.RecordBatch) -> pa.Table:
    """What `one_batch` made one batch, with its strings as string again, in as many chunks as they need."""
    table = pa.Table.from_batches([batch])
    wide = [at for at, kind in enumerate(batch.schema.types) if kind.id == _WIDE]
    if not wide:
        return table
    if batch.num_rows > 1 and any(batch.column(at).nbytes > _LARGEST_TEXT for at in wide):
        middle = batch.num_rows // 2
        return pa.concat_tables([as_declared(batch.slice(0, middle)), as_declared(batch.slice(middle))])
    for at in wide:
        # Arrow refuses to cast what lies far behind in a large array: copied, it begins one
        column = batch.column(at).take(pa.array(np.arange(batch.num_rows))).cast(pa.string())
        table = table.set_column(at, batch.schema.field(at).with_type(pa.string()), column)
    return table


def validity(array: pa.Array) -> Mask:
    """uint8, 0 where NULL."""
    if not array.null_count:
        return np.ones(len(array), np.uint8)
    valid: Mask = array.is_valid().to_numpy(zero_copy_only=False).view(np.uint8)
    return valid


def _words(array: pa.Array, dtype: type[np.generic], width: int = 1) -> npt.NDArray[Any]:
    size = np.dtype(dtype).itemsize * width
    return np.frombuffer(array.buffers()[1], dtype, len(array) * width, array.offset * size)


def physical(array: pa.Array, kind: Kind) -> npt.NDArray[Any]:
    """The column's numbers without its NULLs' meaning; strings are not for this function."""
    if kind is Kind.DECIMAL:  # at most 18 digits: the low word of the 128 bits is the scaled integer
        return np.ascontiguousarray(_words(array, np.int64, 2)[::2])
    if kind is Kind.BOOLEAN:
        filled = pc.fill_null(array, pa.scalar(value=False)) if array.null_count else array
        return np.asarray(filled.to_numpy(zero_copy_only=False), np.int64)
    if kind is Kind.DOUBLE:
        return _words(array, np.float64) + 0.0  # -0.0 becomes 0.0: they are one value
    return _words(array, np.int64)


def bitmap_of(valid: Mask | None) -> pa.Buffer | None:
    """Arrow's validity bitmap; None where nothing is NULL."""
    return None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def logical(values: npt.NDArray[np.generic], valid: Mask | None, kind: FieldType) -> pa.Array:
    """A pyarrow array of the field's declared type from its physical form; strings are not for this function."""
    bitmap = bitmap_of(valid)
    if kind.kind is Kind.DECIMAL:
        words = np.empty((len(values), 2), np.int64)
        words[:, 0] = values
        words[:, 1] = values >> 63  # type: ignore[operator]
        # the widest precision the same bits may have: sums of 18 digits fit 19
        return pa.Array.from_buffers(pa.decimal128(38, kind.scale), len(values), [bitmap, pa.py_buffer(words)])
    if kind.kind is Kind.BOOLEAN:
        return pa.array(values.astype(np.bool_), mask=None if valid is None else valid == 0)
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind.arrow, len(values), [bitmap, pa.py_buffer(values)])


@dataclass
class Column:
    """One field's physical values and validity, one place a store row (with room to grow)."""

    values: npt.NDArray[np.generic]
    valid: Mask


class EventStore:
    """Append-only columns of one stream's events, with their ids interned."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.rows = 0
        self.ids = StringTable()
        self._serials = 0
        self._tables: dict[str, StringTable] = {
            name: StringTable()
            for name, kind in stream.fields.items()
            if kind.kind is Kind.STRING and name != stream.event_id
        }
        self.columns: dict[str, Column] = {
            name: Column(np.zeros(64, np.float64 if kind.kind is Kind.DOUBLE else np.int64), np.zeros(64, np.uint8))
            for name, kind in stream.fields.items()
        }
        self.arrival: Int64Array = np.zeros(64, np.int64)
        self.seq: Int64Array = np.zeros(64, np.int64)
        self.late: Mask = np.zeros(64, np.uint8)
        # A row's place among all arrivals: seq, unless a batch brings what had arrived before what is here, as it
        # may where partitions are not read evenly.
        self.order: Int64Array = np.zeros(64, np.int64)
        self.last_late = -1  # the greatest order of a late row
        self.newest = -1  # the greatest order of the rows behind which the last append has put others
        # of each row the latest arrival up to it, so that not all rows are searched for late arrivals
        self._latest: Int64Array = np.zeros(64, np.int64)
        self._scratch: dict[tuple[str, ...], Int64Array] = {}
        self._keys: dict[tuple[str, ...], tuple[KeyTable, Int64Array]] = {}

    @property
    def times(self) -> Int64Array:
        """Event time in microseconds, int64 (rows and room)."""
        return self.columns[self.stream.event_time].values  # type: ignore[return-value]

    def unseen(self, ids: pa.Array, since: Int64Array | int) -> Int64Array:
        """Indices of the first arrivals among ids, in order; they take the rows from `self.rows` on.

        since: event time (µs), one for all or one for each id; a held event before it does not count as an arrival.
        """
        before = self.ids.count
        codes = self.ids.intern(ids)
        held = np.flatnonzero(codes < before)
        if len(held) and len(again := held[self.times[codes[held]] < np.broadcast_to(since, len(codes))[held]]):
            self.ids.forget(np.unique(codes[again]))
            self.ids.cut(before)
            codes = self.ids.intern(ids)
        fresh = np.flatnonzero(codes >= before)
        if len(fresh) > self.ids.count - before:
            fresh = fresh[np.unique(codes[fresh], return_index=True)[1]]
        return fresh.astype(np.int64, copy=False)

    def append(self, events: pa.RecordBatch, arrival: Int64Array, seq: Int64Array, late: Mask) -> None:
        """Store rows whose ids `unseen` has just admitted, in the same order."""
        old, new = self.rows, self.rows + events.num_rows
        self.arrival = grown(self.arrival, new)
        self.seq = grown(self.seq, new)
        self.late = grown(self.late, new)
        self.arrival[old:new], self.seq[old:new], self.late[old:new] = arrival, seq, late
        self._place(old, new)
        for name, kind in self.stream.fields.items():
            array, column = events.column(name), self.columns[name]
            column.values, column.valid = grown(column.values, new), grown(column.valid, new)
            if name == self.stream.event_id:
                column.values[old:new] = np.arange(self._serials, self._serials + new - old)
            elif kind.kind is Kind.STRING:
                column.values[old:new] = self._tables[name].intern(array)
            else:
                column.values[old:new] = physical(array, kind.kind)
            column.valid[old:new] = validity(array)
        self.rows = new
        self._serials += new - old
        for fields, (table, codes) in self._keys.items():
            longer = grown(codes, new)
            longer[old:new] = self._encode(fields, table, old, new)
            self._keys[fields] = (table, longer)

    def _place(self, old: int, new: int) -> None:
        """Give the new rows their places among all arrivals; what arrived after one of them moves behind it."""
        self.order = grown(self.order, new)
        self.order[old:new] = self.seq[old:new]
        if new == old:
            return
        placed, arrival = np.arange(old, new), self.arrival[old:new]
        first, last = int(arrival.min()), int(self._latest[old - 1]) if old else LONG_AGO
        self._latest = grown(self._latest, new)
        self._latest[old:new] = np.maximum(np.maximum.accumulate(arrival), last)
        self.newest = -1
        if first < last or (arrival[1:] < arrival[:-1]).any():
            since = int(np.searchsorted(self._latest[:old], first, side="right"))
            behind = since + np.flatnonzero(self.arrival[since:old] > first)
            placed = np.append(behind, placed)
            in_order = placed[np.lexsort((self.seq[placed], self.arrival[placed]))]
            self.order[in_order] = np.sort(self.order[placed])
            self.newest = int(self.order[behind].max(initial=-1))
        late = placed[self.late[placed] != 0]
        if len(late):
            self.last_late = max(self.last_late, int(self.order[late].max()))

    def keep(self, rows: Int64Array) -> None:
        """Forget all but these rows (ascending); they become 0, 1, … Codes of fields stay as they are."""
        for column in self.columns.values():
            column.values, column.valid = column.values[rows], column.valid[rows]
        self.arrival, self.seq, self.late = self.arrival[rows], self.seq[rows], self.late[rows]
        self.order, self._latest = self.order[rows], self._latest[rows]
        self.ids.keep(rows)
        self._keys = {fields: (table, codes[rows]) for fields, (table, codes) in self._keys.items()}
        self.rows = len(rows)

    @property
    def codes_given(self) -> int:
        """The largest number of codes that any field or tuple of fields has been given."""
        tables = [table.count for table in self._tables.values()]
        return max(tables + [table.count for table, _ in self._keys.values()], default=0)

    def codes(self, fields: tuple[str, ...]) -> Int64Array:
        """A dense code a row for the tuple of the fields' values, -1 where one is NULL; () is one code for all."""
        if len(fields) == 1 and fields[0] in self._tables:
            return self.columns[fields[0]].values  # type: ignore[return-value]
        if fields not in self._keys:
            table = KeyTable(len(fields))
            codes = np.zeros(max(64, self.rows), np.int64)
            codes[: self.rows] = self._encode(fields, table, 0, self.rows)
            self._keys[fields] = (table, codes)
        return self._keys[fields][1]

    def code_count(self, fields: tuple[str, ...]) -> int:
        """How many codes `codes` has given."""
        if len(fields) == 1 and fields[0] in self._tables:
            return self._tables[fields[0]].count
        self.codes(fields)
        return self._keys[fields][0].count

    def scratch(self, fields: tuple[str, ...]) -> Int64Array:
        """An int64 for each code of the fields, all -1; who writes to it leaves it so."""
        held, count = self._scratch.get(fields), self.code_count(fields)
        if held is None or len(held) < count:
            held = self._scratch[fields] = np.full(max(64, 2 * count), -1, np.int64)
        return held

    def _encode(self, fields: tuple[str, ...], table: KeyTable, old: int, new: int) -> Int64Array:
        if not fields:
            table.count = 1
            return np.zeros(new - old, np.int64)
        values = [self.columns[f].values[old:new].view(np.int64) for f in fields]
        valid = np.logical_and.reduce([self.columns[f].valid[old:new] for f in fields])
        return table.encode(np.stack(values, axis=1), valid)

    def array(self, name: str, rows: Int64Array) -> pa.Array:
        """The field's values of the rows, in the declared type."""
        kind, column = self.stream.fields[name], self.columns[name]
        if name == self.stream.event_id:
            return self.ids.strings(rows)
        if kind.kind is Kind.STRING:
            return self.strings(name, column.values[rows])  # type: ignore[arg-type]
        return logical(column.values[rows], column.valid[rows], kind)

    def strings(self, name: str, values: Int64Array) -> pa.Array:
        """large_string of physical values of a field of strings, -1 for NULL. An event id's row must be held."""
        if name != self.stream.event_id:
            return self._tables[name].strings(values)
        rows = np.searchsorted(self.columns[name].values[: self.rows], values)
        return self.ids.strings(np.where(values < 0, -1, rows))

    def table(self, rows: Int64Array) -> pa.Table:
        """The events of the rows as they came, with arrival_time, arrival_seq and late."""
        columns = {
            name: array if array.type == pa.large_string() else array.cast(kind.arrow)
            for name, kind in self.stream.fields.items()
            for array in (self.array(name, rows),)
        }
        columns[ARRIVAL] = pa.array(self.arrival[rows]).cast(MICROSECONDS)
        columns[SEQ] = pa.array(self.seq[rows])
        columns[LATE] = pa.array(self.late[rows].astype(np.bool_))
        return as_declared(pa.record_batch(columns))


def in_arrival_order(events: pa.RecordBatch) -> pa.RecordBatch:
    """Rows by arrival time, then partition and offset where given, then as they stand."""
    arrival = physical(events.column(ARRIVAL), Kind.TIMESTAMP)
    if (arrival[1:] > arrival[:-1]).all():
        return events
    keys = [(ARRIVAL, "ascending")]
    keys += [(name, "ascending") for name in ("partition", "offset") if name in events.schema.names]
    order = pc.sort_indices(events, sort_keys=keys)
    in_order = (np.diff(order.to_numpy().view(np.int64)) > 0).all()
    return events if in_order else events.take(order)
