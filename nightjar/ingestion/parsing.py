"""Parses Kafka records to typed events, column by column.

How it works: msgspec decodes each record's JSON once; then the values of each field become an Arrow column. A value for
which this could differ from `nightjar.rules.events.parse_recorded` is in doubt: another JSON type than the field's
usual one, a number too long for a double, a time not in the plain format. Such records, and those that msgspec cannot
decode, are parsed again by `parse_recorded` itself; as are a few records, for which operations on columns take longer.
So the two parsers agree by construction; tests give both the same input. Derived fields are computed last, of all
events at once.

Known limitation: a stream whose usual records are in doubt (amounts with exponents, or with more than 15 digits in the
field's smallest unit, or decimals in a list that holds texts) is parsed at a tenth of the speed.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from nightjar.rules.derived import with_derived
from nightjar.rules.event_values import MAX_STRING
from nightjar.rules.events import MAX_NESTING, Rejection, check_skew, parse_recorded, recorded_table
from nightjar.rules.field_paths import ABSENT, BLOCKED
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP
from nightjar.rules.types import INSTANT, FieldType, Kind
from nightjar.rules.written_times import WrittenTime

Mask = npt.NDArray[np.bool_]

# Up to this many records are parsed by `parse_event`.
_FEW = 50
# Different decimals of up to 15 digits are different doubles, so a double identifies the decimal that was written, if
# what it is scaled to has no more digits either.
_IDENTIFIED = 10.0**15
_LONG = r"-?(?:[0-9.]{17}|[0-9.]+[eE])"
_OF_KEY = rf"\s*:\s*{_LONG}"
# The same of a number in a list, or a list with anything but numbers before its end.
_OF_LIST = rf'\s*:\s*\[(?:[^\[\]"]*?{_LONG}|[^\]]*?[\["])'
# The same of a decimal written as text: at most 15 digits and a point, or a whole number (see _WHOLE).
_SHORT_DECIMAL = r"^-?[0-9]+(?:\.[0-9]+)?$"
_SHORT_LENGTH = 16
# Every whole number up to here is exactly a double.
_WHOLE = 1 << 53
_INT64 = range(-(1 << 63), 1 << 63)
_ISO = (
    r"^(?:19|2[0-9])[0-9]{2}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
    r"(?:\.[0-9]{1,6})?(?:Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9])$"
)
_ISO_FORMAT = "%Y-%m-%dT%H:%M:%S%.f%#z"

_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True)
class Parsed:
    """Parsed records. events: the stream's fields (Stream.schema); rows: each event's record; rejected: the others."""

    events: pa.Table
    rows: npt.NDArray[np.int64]
    rejected: list[tuple[int, Rejection]]


def parse_events(values: pa.Array, arrivals: pa.Array, stream: Stream) -> Parsed:
    """Parse records: values (binary, NULL if empty) and arrivals (int64, µs). Each becomes an event or is rejected."""
    if len(values) <= _FEW:
        parsed = _parsed_by_record(values.to_pylist(), range(len(values)), arrivals, stream)
        return replace(parsed, events=with_derived(parsed.events, stream))
    return parse_columns(values, arrivals, stream)


@contextmanager
def _without_collection() -> Iterator[None]:
    """All documents of a batch live until it has been parsed, and hold no cycles: to look for garbage among them again
    and again takes a third of the time where they are nested."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_without_collection()
def parse_columns(values: pa.Array, arrivals: pa.Array, stream: Stream) -> Parsed:
    """The same, however few the records are."""
    raw = values.to_pylist()
    sure, documents = _documents(raw, values)
    columns, doubt = _columns(documents, stream)
    latest = arrivals.to_numpy(zero_copy_only=False)[sure] + stream.max_future_skew
    doubt |= columns[stream.event_time].cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) > latest
    doubt |= _long_decimals(values, stream)[sure]
    plain = pa.table(columns).filter(~doubt)
    sure = sure[~doubt]
    others = _parsed_by_record(raw, np.setdiff1d(np.arange(len(raw)), sure).tolist(), arrivals, stream)
    rows = np.concatenate([sure, others.rows])
    events = with_derived(pa.concat_tables([plain, others.events]), stream)
    return Parsed(events, rows, others.rejected)


def _parsed_by_record(raw: Sequence[bytes | None], wanted: Iterable[int], arrivals: pa.Array, stream: Stream) -> Parsed:
    """The wanted ones of the records, each parsed by `parse_recorded`; without derived fields."""
    rows, events, rejected = [], list[dict[str, Any]](), list[tuple[int, Rejection]]()
    for at in wanted:
        event = parse_recorded(raw[at] or b"", stream)
        if isinstance(event, Rejection):
            rejected.append((at, event))
        elif (early := check_skew(event[stream.event_time], arrivals[at].as_py(), stream)) is not None:
            rejected.append((at, early))
        else:
            rows.append(at)
            events.append(event)
    return Parsed(recorded_table(events, stream), np.array(rows, np.int64), rejected)


def _long_decimals(values: pa.Array, stream: Stream) -> Mask:
    """The records with a decimal of more digits than its double tells, at the least."""
    paths = [stream.path(name) for name, kind in stream.recorded.items() if kind.kind is Kind.DECIMAL]
    found = np.zeros(len(values), np.bool_)
    for form, keys in (
        (_OF_KEY, [path.key for path in paths if not path.is_element]),
        (_OF_LIST, [path.key for path in paths if path.is_element]),
    ):
        if keys:
            found |= _mask(pc.match_substring_regex(values, f'"(?:{"|".join(map(re.escape, keys))})"{form}'))
    # any key may be written so, one of other characters in several ways
    escape = "\\u" if all(path.key.isidentifier() for path in paths) else "\\"
    if paths and (escaped := _mask(pc.match_substring(values, escape))).any():
        found |= escaped & _mask(pc.match_substring_regex(values, f"[:,\\[]\\s*{_LONG}"))
    return found


def _documents(raw: Sequence[bytes | None], values: pa.Array) -> tuple[npt.NDArray[np.int64], list[dict[str, Any]]]:
    """The records that are JSON objects: their rows and contents."""
    brackets = pc.add(pc.count_substring(values, b"{"), pc.count_substring(values, b"["))
    deep = _mask(pc.greater(brackets, MAX_NESTING)).tolist()
    rows, documents = [], []
    for at, record in enumerate(raw):
        if record is None or deep[at]:
            continue
        try:
            document = _decode(record)
        except (msgspec.DecodeError, ValueError, RecursionError):  # ValueError: it is not UTF-8
            continue
        if type(document) is dict:
            rows.append(at)
            documents.append(document)
    return np.array(rows, np.int64), documents


def _columns(documents: list[dict[str, Any]], stream: Stream) -> tuple[dict[str, pa.Array], Mask]:
    """The fields by name, and which documents are in doubt; column values of those are meaningless."""
    doubt = np.zeros(len(documents), np.bool_)
    columns, places = {}, _Places(documents)
    for name, declared in stream.recorded.items():
        values = places.at(stream.path(name).steps)
        if name in stream.optional:
            values = [None if value is ABSENT else value for value in values]
        usual, typed = _TYPED[declared.kind]
        if (written := stream.times.get(name)) is not None:
            usual, typed = frozenset({int, float, str}), partial(_written_times, written)
        if name not in (stream.event_id, stream.event_time):
            usual |= {type(None)}
        if odd := set(map(type, values)) - usual:
            unusual = [type(value) in odd for value in values]
            values = [None if is_odd else value for value, is_odd in zip(values, unusual, strict=True)]
            doubt |= np.array(unusual)
        columns[name], unsure = typed(values, declared)
        doubt |= unsure
    doubt |= _mask(pc.equal(columns[stream.event_id], ""))
    return columns, doubt


class _Places:
    """The values at paths of some documents, as FieldPath.value has them; what paths have in common is read once."""

    def __init__(self, documents: list[dict[str, Any]]) -> None:
        self._read: dict[tuple[str | int, ...], list[Any]] = {(): documents}

    def at(self, steps: tuple[str | int, ...]) -> list[Any]:
        if (found := self._read.get(steps)) is None:
            values, step = self.at(steps[:-1]), steps[-1]
            if isinstance(step, str):
                found = [value.get(step, ABSENT) if type(value) is dict else _no_way(value) for value in values]
            else:
                found = [_element(value, step) if type(value) is list else _no_way(value) for value in values]
            self._read[steps] = found
        return found


def _element(values: list[Any], at: int) -> Any:
    return values[at] if at < len(values) else ABSENT


def _no_way(value: Any) -> Any:
    """What is further on, where something else is than the object or list that the path needs."""
    return value if value is None or value is ABSENT else BLOCKED


def _strings(values: list[Any], _: FieldType) -> tuple[pa.Array, Mask]:
    array = pa.array(values, pa.string())
    return array, _mask(pc.greater(pc.utf8_length(array), MAX_STRING))


def _booleans(values: list[Any], _: FieldType) -> tuple[pa.Array, Mask]:
    return pa.array(values, pa.bool_()), np.zeros(len(values), np.bool_)


def _integers(values: list[Any], _: FieldType) -> tuple[pa.Array, Mask]:
    return _bounded(values, _INT64)


def _bounded(values: list[Any], allowed: range) -> tuple[pa.Array, Mask]:
    known = [value for value in values if value is not None]
    if not known or (min(known) in allowed and max(known) in allowed):
        return pa.array(values, pa.int64()), np.zeros(len(values), np.bool_)
    doubt = [value is not None and value not in allowed for value in values]
    return pa.array(values, pa.int64(), mask=np.array(doubt)), np.array(doubt)


def _doubles(values: list[Any], _: FieldType) -> tuple[pa.Array, Mask]:
    held = [float(v) if type(v) is int and -_WHOLE <= v <= _WHOLE else v for v in values]
    doubt = np.array([type(value) is int for value in held], np.bool_)
    array = pa.array(held, pa.float64(), mask=doubt)
    return array, doubt | _mask(pc.invert(pc.is_finite(array)))


def _decimals(values: list[Any], declared: FieldType) -> tuple[pa.Array, Mask]:
    array, doubt = _numbers_as_written(values, declared)
    held = array.fill_null(0.0).to_numpy(zero_copy_only=False)
    unit = 10.0**declared.scale
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.rint(held * unit)
        doubt |= ~((scaled / unit == held) & (np.abs(scaled) < min(10.0**declared.precision, _IDENTIFIED)))
    words = np.zeros((len(values), 2), np.int64)
    words[:, 0] = np.where(doubt, 0.0, scaled)
    words[:, 1] = words[:, 0] >> 63
    buffers = [array.is_valid().buffers()[1], pa.py_buffer(words)]
    return pa.Array.from_buffers(declared.arrow, len(values), buffers), doubt


def _numbers_as_written(values: list[Any], declared: FieldType) -> tuple[pa.Array, Mask]:
    """Doubles, each of which is the one of a number or of a number as text."""
    texts = _texts(values)
    if not texts.any():
        return _doubles(values, declared)
    numbers, doubt = _doubles(_only(values, ~texts), declared)
    written = pa.array(_only(values, texts), pa.string())
    short = pc.and_(
        pc.match_substring_regex(written, _SHORT_DECIMAL), pc.less_equal(pc.binary_length(written), _SHORT_LENGTH)
    )
    read = pc.if_else(short, written, pa.scalar(None, pa.string())).cast(pa.float64())
    return pc.coalesce(numbers, read), doubt | (texts & _mask(pc.is_null(read)))


def _times(values: list[Any], _: FieldType) -> tuple[pa.Array, Mask]:
    milliseconds = range(-(-MIN_TIMESTAMP // 1000), MAX_TIMESTAMP // 1000 + 1)
    texts = _texts(values)
    if not texts.any():
        array, doubt = _bounded(values, milliseconds)
        return _instants(pc.multiply(array, 1000)), doubt
    numbers, doubt = _bounded(_only(values, ~texts), milliseconds)
    written = pl.Series(_only(values, texts), dtype=pl.String)
    plain = pl.select(pl.when(written.str.contains(_ISO)).then(written)).to_series()
    read = plain.str.to_datetime(_ISO_FORMAT, time_unit="us", time_zone="UTC", strict=False).to_arrow()
    instants = pc.coalesce(pc.multiply(numbers, 1000), read.cast(pa.int64()))
    return _instants(instants), doubt | (texts & _mask(pc.is_null(instants)))


def _written_times(written: WrittenTime, values: list[Any], _: FieldType) -> tuple[pa.Array, Mask]:
    """As declared. One by one, but each different value once."""
    # many whole numbers beyond 64 bits could have one hash, so none is kept
    kept = [None if type(value) is int and value not in _INT64 else value for value in values]
    read = {key: _written_time(written, key[1]) for key in {(type(value), value) for value in kept}}
    instants = [read[type(value), value] for value in kept]
    doubt = [value is not None and instant is None for value, instant in zip(values, instants, strict=True)]
    return _instants(pa.array(instants, pa.int64())), np.array(doubt, np.bool_)


def _written_time(written: WrittenTime, value: Any) -> int | None:
    if isinstance(value, str):
        return written.of_text(value)
    if isinstance(value, int):
        return written.of_number(str(value))
    # of a number with a format counts how it is written, which is no longer known
    return None if value is None or written.format or written.unit is None else written.of_double(value)


def _texts(values: list[Any]) -> Mask:
    """Which of the values are texts."""
    return np.array([type(value) is str for value in values], np.bool_)


def _only(values: list[Any], wanted: Mask) -> list[Any]:
    """The values with None in place of others."""
    return [value if is_wanted else None for value, is_wanted in zip(values, wanted.tolist(), strict=True)]


def _instants(microseconds: pa.Array) -> pa.Array:
    return microseconds.view(INSTANT)


def _mask(booleans: pa.Array) -> Mask:
    found: Mask = pc.fill_null(booleans, pa.scalar(value=False)).to_numpy(zero_copy_only=False)
    return found


_Typed = Callable[[list[Any], FieldType], tuple[pa.Array, Mask]]
# The Python types of a field's values that are not in doubt, and the function that converts them to a column.
_TYPED: dict[Kind, tuple[frozenset[type], _Typed]] = {
    Kind.STRING: (frozenset({str}), _strings),
    Kind.BOOLEAN: (frozenset({bool}), _booleans),
    Kind.INT64: (frozenset({int}), _integers),
    Kind.DOUBLE: (frozenset({int, float}), _doubles),
    Kind.DECIMAL: (frozenset({int, float, str}), _decimals),
    Kind.TIMESTAMP: (frozenset({int, str}), _times),
}
