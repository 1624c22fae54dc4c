"""Parses Kafka records to typed events, column by column.

How it works: each record is decoded once, JSON by msgspec, other formats by their libraries (nightjar/formats); then
the values of each field become an Arrow column. A value for which this could differ from
`nightjar.formats.decoding.recorded` is in doubt: another type than the field's usual one, a number too long for a
double, a time not in the plain format. Such records, and those that cannot be decoded, are parsed again by `recorded`
itself; as are a few records, for which operations on columns take longer. So the two parsers agree by construction;
tests give both the same input. Derived fields are computed last, of all events at once.

Known limitation: a stream whose usual records are in doubt (amounts with exponents, or with more than 15 digits in the
field's smallest unit, or decimals in a list that holds texts) is parsed at a fifth of the speed.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
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

from nightjar.formats.avro import MAX_DECIMAL
from nightjar.formats.decoding import decoded, recorded
from nightjar.formats.records import Raw, Records
from nightjar.formats.schemas import Schemas
from nightjar.rules.derived import with_derived
from nightjar.rules.encodings import Format
from nightjar.rules.envelopes import EnvelopeError, NoEventError, unwrapped
from nightjar.rules.event_values import MAX_STRING
from nightjar.rules.events import MAX_NESTING, Rejection, check_skew, recorded_table
from nightjar.rules.field_paths import ABSENT, BLOCKED, HEADERS
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP
from nightjar.rules.types import INSTANT, FieldType, Kind, decimals_of
from nightjar.rules.written_times import UNITS, WrittenTime

Mask = npt.NDArray[np.bool_]

# Up to this many records are parsed one by one.
_FEW = 100
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


def parse_events(records: Records, stream: Stream, schemas: Schemas | None = None) -> Parsed:
    """Parse records. Each becomes an event or is rejected. schemas: of records that name them.

    Raises:
        RegistryError: a schema is not known yet, and the registry cannot be asked.
    """
    if len(records.values) <= _FEW:
        rows = range(len(records.values))
        parsed = _parsed_by_record(records.values.to_pylist(), rows, records, stream, schemas)
        return replace(parsed, events=with_derived(parsed.events, stream))
    return parse_columns(records, stream, schemas)


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
def parse_columns(records: Records, stream: Stream, schemas: Schemas | None = None) -> Parsed:
    """The same, however few the records are."""
    raw = records.values.to_pylist()
    latest = records.arrivals.to_numpy(zero_copy_only=False) + stream.max_future_skew
    plain, sure = list[pa.Table](), [np.empty(0, np.int64)]
    for contents in _contents(raw, records, stream, schemas):
        columns, doubt = _columns(contents)
        times = columns[stream.event_time].cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        doubt |= times > latest[contents.rows]
        if stream.encoding.format is Format.JSON:
            doubt |= _long_decimals(records.values, stream)[contents.rows]
        plain.append(pa.table(columns).filter(~doubt))
        sure.append(contents.rows[~doubt])
    known = np.concatenate(sure)
    others = np.setdiff1d(np.arange(len(raw)), known).tolist()
    by_record = _parsed_by_record(raw, others, records, stream, schemas)
    events = with_derived(pa.concat_tables([*plain, by_record.events]), stream)
    return Parsed(events, np.concatenate([known, by_record.rows]), by_record.rejected)


def _parsed_by_record(
    raw: Sequence[bytes | None], wanted: Sequence[int], records: Records, stream: Stream, schemas: Schemas | None
) -> Parsed:
    """The wanted ones of the records, each parsed by `recorded`; without derived fields."""
    rows, events, rejected = [], list[dict[str, Any]](), list[tuple[int, Rejection]]()
    beside = records.beside(wanted)
    for number, at in enumerate(wanted):
        of = None if beside is None else beside[number]
        arrival = records.arrivals[at].as_py()
        event = recorded(Raw(raw[at] or b"", arrival, of), stream, schemas)
        if isinstance(event, Rejection):
            rejected.append((at, event))
        elif (early := check_skew(event[stream.event_time], arrival, stream)) is not None:
            rejected.append((at, early))
        else:
            rows.append(at)
            events.append(event)
    return Parsed(recorded_table(events, stream), np.array(rows, np.int64), rejected)


@dataclass(frozen=True)
class _Contents:
    """What the fields of some records are read in.

    first: what they have at the first step of a path; stream: as their schema has its fields; scales: of fields whose
    bytes are decimals.
    """

    rows: npt.NDArray[np.int64]
    first: Callable[[str], list[Any]]
    stream: Stream
    scales: Mapping[str, int]

    @classmethod
    def of(
        cls, rows: list[int], documents: list[dict[str, Any]], stream: Stream, scales: Mapping[str, int]
    ) -> _Contents:
        """Of an object each."""

        def first(step: str) -> list[Any]:
            return [document.get(step, ABSENT) for document in documents]

        return cls(np.array(rows, np.int64), first, stream, scales)


def _contents(
    raw: Sequence[bytes | None], records: Records, stream: Stream, schemas: Schemas | None
) -> Iterator[_Contents]:
    """The contents of records that could be decoded, without their envelopes."""
    if stream.encoding.format is Format.JSON:
        rows, documents = _json_documents(raw, records.values)
        if records.has_context or stream.encoding.envelope is not None:
            rows, documents = _unwrapped(rows, documents, records, stream)
        yield _Contents.of(rows, documents, stream, {})
        return
    for group in decoded(raw, records.arrivals.to_pylist(), stream, schemas):
        reader = group.reader
        if records.has_context or stream.encoding.envelope is not None:
            rows, documents = _unwrapped(*group.documents(), records, reader.stream)
            yield _Contents.of(rows, documents, reader.stream, reader.scales)
        else:
            first = partial(reader.column, group.records)
            yield _Contents(np.array(group.rows, np.int64), first, reader.stream, reader.scales)


def _unwrapped(
    rows: list[int], documents: list[Any], records: Records, stream: Stream
) -> tuple[list[int], list[dict[str, Any]]]:
    """Those with the envelope that is declared: their rows, and what is within it and beside the value."""
    beside = records.beside(rows)
    kept, contents = [], []
    for row, document, of in zip(rows, documents, beside or [{}] * len(rows), strict=True):
        try:
            content = unwrapped(document, of.get(HEADERS) or {}, stream.encoding)
        except (NoEventError, EnvelopeError):
            continue
        if type(content) is dict:
            kept.append(row)
            contents.append({**content, **of})
    return kept, contents


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


def _json_documents(raw: Sequence[bytes | None], values: pa.Array) -> tuple[list[int], list[Any]]:
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
    return rows, documents


def _columns(contents: _Contents) -> tuple[dict[str, pa.Array], Mask]:
    """The fields by name, and which records are in doubt; column values of those are meaningless."""
    stream = contents.stream
    doubt = np.zeros(len(contents.rows), np.bool_)
    columns, places = {}, _Places(contents.first)
    for name, declared in stream.recorded.items():
        values = places.at(stream.path(name).steps)
        if name in stream.optional:
            values = [None if value is ABSENT else value for value in values]
        usual, typed = _TYPED[declared.kind]
        if declared.kind is Kind.DECIMAL and (scale := contents.scales.get(name)) is not None:
            usual, typed = frozenset({bytes}), partial(_scaled_decimals, scale)
        if stream.path(name).is_beside and declared.kind is not Kind.STRING:
            usual = frozenset()
        if (written := stream.times.get(name)) is not None:
            usual, typed = usual and frozenset({int, float, str}), partial(_written_times, written)
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
    """The values at paths of some records, as FieldPath.value has them; what paths have in common is read once."""

    def __init__(self, first: Callable[[str], list[Any]]) -> None:
        self._first = first
        self._read: dict[tuple[str | int, ...], list[Any]] = {}

    def at(self, steps: tuple[str | int, ...]) -> list[Any]:
        if (found := self._read.get(steps)) is None:
            step = steps[-1]
            values = self.at(steps[:-1]) if len(steps) > 1 else []
            if isinstance(step, str) and len(steps) == 1:
                found = self._first(step)
            elif isinstance(step, str):
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
    doubt = np.zeros(len(values), np.bool_)
    if int in set(map(type, values)):
        # as they are written, except that 0 may be written as -0
        doubt = np.array([value == 0 for value in values], np.bool_)
        values = [str(value) if type(value) is int else value for value in values]
    array = pa.array(values, pa.string())
    return array, doubt | _mask(pc.greater(pc.utf8_length(array), MAX_STRING))


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
    whole = np.where(doubt, 0.0, scaled).astype(np.int64)
    return decimals_of(whole, array.is_valid().buffers()[1], declared.arrow), doubt


def _scaled_decimals(scale: int, values: list[bytes | None], declared: FieldType) -> tuple[pa.Array, Mask]:
    """Of bytes that are whole numbers (signed, big-endian) of this scale."""
    further = declared.scale - scale
    unit = 10 ** abs(further)
    beyond = 10 ** (declared.precision - max(further, 0))
    whole = [
        value if value is None else int.from_bytes(value, "big", signed=True) if len(value) <= MAX_DECIMAL else beyond
        for value in values
    ]
    if further < 0:
        whole = [value if value is None else beyond if value % unit else value // unit for value in whole]
    array, doubt = _bounded(whole, range(1 - beyond, beyond))
    scaled = array.fill_null(0).to_numpy() * (unit if further > 0 else 1)
    return decimals_of(scaled, array.is_valid().buffers()[1], declared.arrow), doubt


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
    """As declared: whole numbers at once, others one by one, but each different value once."""
    if written.format is None and set(map(type, values)) <= {int, type(None)}:
        return _whole_times(written, values)
    # many whole numbers beyond 64 bits could have one hash, so none is kept
    kept = [None if type(value) is int and value not in _INT64 else value for value in values]
    read = {key: _written_time(written, key[1]) for key in {(type(value), value) for value in kept}}
    instants = [read[type(value), value] for value in kept]
    doubt = [value is not None and instant is None for value, instant in zip(values, instants, strict=True)]
    return _instants(pa.array(instants, pa.int64())), np.array(doubt, np.bool_)


def _whole_times(written: WrittenTime, values: list[Any]) -> tuple[pa.Array, Mask]:
    if written.unit == "ns":
        array, doubt = _bounded(values, _INT64)
        # to the earlier microsecond, also before 1970, which is not Arrow's division
        micros = array.fill_null(0).to_numpy() // 1000
        return _instants(pa.array(micros, mask=array.is_null().to_numpy(zero_copy_only=False))), doubt
    unit = UNITS[written.unit or "ms"]
    array, doubt = _bounded(values, range(-(-MIN_TIMESTAMP // unit), MAX_TIMESTAMP // unit + 1))
    return _instants(pc.multiply(array, unit)), doubt


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
    Kind.STRING: (frozenset({str, int}), _strings),
    Kind.BOOLEAN: (frozenset({bool}), _booleans),
    Kind.INT64: (frozenset({int}), _integers),
    Kind.DOUBLE: (frozenset({int, float}), _doubles),
    Kind.DECIMAL: (frozenset({int, float, str}), _decimals),
    Kind.TIMESTAMP: (frozenset({int, str}), _times),
}
