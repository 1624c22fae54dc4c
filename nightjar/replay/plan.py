"""Plans a replay: each record's bytes, key and arrival, as a pure function of the events and the options.

How it works: every event gets an event time (kept, or shifted to now) and an arrival. Flaws are drawn from the seed:
some events arrive late or out of order, some are sent twice, and malformed records are mixed in. The plan is the list
of records in order of arrival; their JSON is built last, in batches of some tens of thousands.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from nightjar.files.declared_rows import ARRIVAL
from nightjar.replay.malformed import forms, malformed
from nightjar.rules.durations import format_duration
from nightjar.rules.encodings import PLAIN
from nightjar.rules.errors import SettingsError
from nightjar.rules.streams import Stream
from nightjar.rules.types import TIMESTAMP, Kind

# Kafka's timestamps are milliseconds, so an arrival that the producer sets must be a whole number of them.
MILLISECOND = 1_000

# Duplicates of late events are sent within this time of the first; others within their allowed lateness.
_AGAIN = 60_000_000

ROWS_AT_ONCE = 50_000

SCHEMA = pa.schema(
    [
        ("arrival_time", TIMESTAMP.arrow),
        ("key", pa.string()),
        ("value", pa.binary()),
        ("kind", pa.string()),
        ("form", pa.string()),
        ("reason", pa.string()),
        ("event_id", pa.string()),
        ("event_time", TIMESTAMP.arrow),
    ]
)


class RecordKind(StrEnum):
    """The kind of a planned record."""

    EVENT = "event"
    DISORDERED = "disordered"
    LATE = "late"
    DUPLICATE = "duplicate"
    MALFORMED = "malformed"


@dataclass(frozen=True)
class ReplayOptions:
    """How to replay; durations and times are microseconds, shares are fractions of the file's events."""

    start: int | None = None
    """Wall-clock start of the replay; event times are shifted so that the first is then. None: event times and arrivals
    are kept (arrivals are the file's `arrival_time`, else the event time)."""
    speed: float = 1.0
    """Speed-up over the original pace. Shifted event times are compressed by the same factor, so that they keep up with
    the clock. inf: as fast as possible; the last of the shifted events is then at `start`."""
    disorder: float = 0.0
    max_delay: int | None = None
    """`disorder` and `max_delay`: this share arrives up to `max_delay` after its event time (default: half the allowed
    lateness)."""
    late: float = 0.0
    max_late: int | None = None
    """`late` and `max_late`: this share arrives up to `max_late` after the allowed lateness (default: the allowed
    lateness)."""
    duplicates: float = 0.0
    """This share is sent twice with identical bytes; the duplicate of an event on time is on time as well."""
    malformed: float = 0.0
    """Number of malformed records, as a share of the events."""
    seed: int = 0

    def check(self, stream: Stream) -> None:
        """Raise SettingsError for invalid values or combinations."""
        if not self.speed > 0:
            raise SettingsError(f"{self.speed} is not a speed", where="speed", remedy="Give a positive number, or inf")
        for name in ("disorder", "late", "duplicates", "malformed"):
            if not 0 <= getattr(self, name) <= 1:
                raise SettingsError(
                    f"{getattr(self, name)} is not a share", where=name, remedy="Give a share from 0 to 1"
                )
        if self.disorder + self.late > 1:
            raise SettingsError(
                "the shares of disorder and late add up to more than 1",
                where="late",
                remedy="Choose smaller shares: an event is one or the other",
            )
        if self.max_delay is not None and not 0 < self.max_delay < stream.allowed_lateness:
            allowed = format_duration(stream.allowed_lateness)
            raise SettingsError(
                f"{format_duration(self.max_delay)} is not a delay within stream {stream.name}'s allowed lateness",
                where="max_delay",
                remedy=f"Choose less than {allowed}, or ask for late events",
            )
        if self.malformed and stream.encoding != PLAIN:
            raise SettingsError(
                f"malformed records are made of plain JSON, and stream {stream.name} has others",
                where="malformed",
                remedy="Leave it out",
            )
        if self.max_late is not None and self.max_late <= 0:
            raise SettingsError("is not a delay", where="max_late", remedy="Give a positive duration")
        if self.start is not None and math.isinf(self.speed) and (self.disorder or self.late):
            raise SettingsError(
                "at maximum speed all events arrive now, so none can be out of order or late",
                where="speed",
                remedy="Keep the times (with arrival = producer), or give a finite speed",
            )


@dataclass(frozen=True)
class _Schedule:
    """The records in order of arrival. `row` is the file's row; `form` is -1 for an event, else the flaw's number."""

    row: NDArray[np.int64]
    arrival: NDArray[np.int64]
    kind: NDArray[np.int8]
    form: NDArray[np.int64]
    event_time: NDArray[np.int64]  # of every row of the file, as sent


def replay_plan(table: pa.Table, stream: Stream, options: ReplayOptions) -> pa.Table:
    """Every record of a replay, in order of arrival.

    `table` has the stream's fields and optionally `arrival_time` (see `event_files.read_events`), in any order. Columns
    of the plan: arrival_time timestamp(us, UTC), key string (the first entity's value, else the event id), value binary
    (JSON), kind (a Kind), form and reason (of malformed records: what is wrong, and the reason code for the quarantine;
    else null), event_id, event_time (as sent; null for malformed records).

    Raises:
        SettingsError: invalid options.
    """
    _, batches = replay_batches(table, stream, options)
    return pa.concat_tables([SCHEMA.empty_table(), *batches])


def replay_batches(table: pa.Table, stream: Stream, options: ReplayOptions) -> tuple[int, Iterator[pa.Table]]:
    """The number of records, and the records in batches of some tens of thousands."""
    options.check(stream)
    schedule = _schedule(table, stream, options)
    parts = range(0, schedule.row.size, ROWS_AT_ONCE)
    return schedule.row.size, (
        _records(table, stream, schedule, slice(begin, begin + ROWS_AT_ONCE), begin) for begin in parts
    )


def _schedule(table: pa.Table, stream: Stream, options: ReplayOptions) -> _Schedule:
    rows = table.num_rows
    times, delayed, twice, flawed = (
        np.random.default_rng(seed) for seed in np.random.SeedSequence(options.seed).spawn(4)
    )
    happened = _microseconds(table, stream.event_time)
    event_time = _shifted(happened, options)
    arrival = _microseconds(table, ARRIVAL) if _keeps_arrival(table, options) else event_time.copy()
    if options.start is not None and math.isinf(options.speed):
        arrival[:] = options.start
    chosen = times.random(rows)
    disordered = chosen < options.disorder
    late = (chosen >= options.disorder) & (chosen < options.disorder + options.late)
    delay = _delays(delayed, disordered, late, stream, options)
    arrival = np.maximum(arrival, event_time + delay)
    if options.start is None:
        arrival = -(-arrival // MILLISECOND) * MILLISECOND
    lateness = arrival - event_time
    kind = np.where(lateness > stream.allowed_lateness, _CODES[RecordKind.LATE], _CODES[RecordKind.EVENT])
    kind[(kind == _CODES[RecordKind.EVENT]) & disordered] = _CODES[RecordKind.DISORDERED]

    again = np.flatnonzero(twice.random(rows) < options.duplicates)
    room = np.maximum(stream.allowed_lateness - lateness[again], 0)
    room[kind[again] == _CODES[RecordKind.LATE]] = _AGAIN
    repeated = arrival[again] + (twice.random(again.size) * room).astype(np.int64) // MILLISECOND * MILLISECOND

    templates = np.sort(flawed.choice(rows, size=round(options.malformed * rows)))
    row = np.concatenate([np.arange(rows), again, templates])
    planned = np.concatenate([arrival, repeated, arrival[templates]])
    form = np.concatenate([np.full(rows + again.size, -1), flawed.integers(len(forms(stream)), size=templates.size)])
    kinds = np.concatenate(
        [kind, np.full(again.size, _CODES[RecordKind.DUPLICATE]), np.full(templates.size, _CODES[RecordKind.MALFORMED])]
    )
    order = np.lexsort((event_time[row], planned))
    return _Schedule(row[order], planned[order], kinds[order].astype(np.int8), form[order], event_time)


_KINDS = list(RecordKind)
_CODES = {kind: code for code, kind in enumerate(_KINDS)}


def _keeps_arrival(table: pa.Table, options: ReplayOptions) -> bool:
    return options.start is None and ARRIVAL in table.column_names


def _shifted(happened: NDArray[np.int64], options: ReplayOptions) -> NDArray[np.int64]:
    if options.start is None or not happened.size:
        return happened
    first, last = int(happened.min()), int(happened.max())
    if math.isinf(options.speed):
        return happened - last + options.start
    return options.start + ((happened - first) / options.speed).astype(np.int64)


def _delays(
    rng: np.random.Generator,
    disordered: NDArray[np.bool_],
    late: NDArray[np.bool_],
    stream: Stream,
    options: ReplayOptions,
) -> NDArray[np.int64]:
    """Microseconds between event time and arrival: 0 for events that are neither late nor out of order."""
    allowed = stream.allowed_lateness
    longest = allowed // 2 if options.max_delay is None else options.max_delay
    # The arrival is rounded up to a millisecond, and must stay on its side of the allowed lateness.
    longest = max(0, min(longest, allowed - MILLISECOND))
    beyond = (allowed or 60_000_000) if options.max_late is None else options.max_late
    share = 1.0 - rng.random(disordered.size)
    delay = np.zeros(disordered.size, np.int64)
    delay[disordered] = np.ceil(share[disordered] * longest)
    delay[late] = allowed + np.ceil(share[late] * beyond).astype(np.int64)
    return delay


def _records(table: pa.Table, stream: Stream, schedule: _Schedule, part: slice, begin: int) -> pa.Table:
    rows = schedule.row[part]
    events = pl.DataFrame(table.select(list(stream.recorded)).take(pa.array(rows)))
    event_time = pl.Series(schedule.event_time[rows]).cast(pl.Datetime("us", "UTC"))
    events = events.with_columns(event_time.alias(stream.event_time))
    texts = events.select(pl.struct(_as_text(name, kind.kind) for name, kind in stream.recorded.items()))
    value = texts.to_series().struct.json_encode().cast(pl.Binary)
    if stream.paths:
        placed = (stream.record(msgspec.json.decode(text)) for text in value)
        value = pl.Series([msgspec.json.encode(record) for record in placed], dtype=pl.Binary)
    records = pl.DataFrame(
        {
            "arrival_time": pl.Series(schedule.arrival[part]).cast(pl.Datetime("us", "UTC")),
            "key": _keys(events, stream),
            "value": value,
            "kind": pl.Series(_KINDS).gather(schedule.kind[part].astype(np.uint32)),
            "form": pl.Series([None] * len(rows), dtype=pl.String),
            "reason": pl.Series([None] * len(rows), dtype=pl.String),
            "event_id": events[stream.event_id],
            "event_time": event_time,
        }
    )
    broken = np.flatnonzero(schedule.form[part] >= 0)
    if not broken.size:
        return records.to_arrow().cast(SCHEMA)
    ways = forms(stream)
    used = [ways[form] for form in schedule.form[part][broken]]
    arrivals = schedule.arrival[part][broken].tolist()
    values = [
        malformed(form, stream, value[at], begin + at, arrived)
        for form, at, arrived in zip(used, broken.tolist(), arrivals, strict=True)
    ]
    nothing = [None] * len(used)
    replaced = pl.DataFrame(
        {
            "value": pl.Series(values, dtype=pl.Binary),
            "form": [form.name for form in used],
            "reason": [form.reason.value for form in used],
            "event_id": pl.Series(nothing, dtype=pl.String),
            "event_time": pl.Series(nothing, dtype=pl.Datetime("us", "UTC")),
        }
    )
    columns = [records[name].scatter(broken, replaced[name]) for name in replaced.columns]
    return records.with_columns(columns).to_arrow().cast(SCHEMA)


def _keys(events: pl.DataFrame, stream: Stream) -> pl.Series:
    """The first entity's value, else the event's id."""
    entity = next((name for name in stream.entities if name in stream.recorded), stream.event_id)
    return events[entity].cast(pl.String).fill_null(events[stream.event_id])


def _as_text(name: str, kind: Kind) -> pl.Expr:
    """Decimals as text with all their digits, times in ISO 8601 with their zone."""
    column = pl.col(name)
    if kind is Kind.TIMESTAMP:
        return column.dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ")
    return column.cast(pl.String) if kind is Kind.DECIMAL else column


def _microseconds(table: pa.Table, name: str) -> NDArray[np.int64]:
    values: NDArray[np.int64] = table[name].cast(TIMESTAMP.arrow).cast(pa.int64()).to_numpy()
    return values.copy()
