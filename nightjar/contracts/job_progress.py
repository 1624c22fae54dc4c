"""What the job reports of itself: the records of the job-progress topic.

The driver reports once per second (key `job`), each bucket at most as often (key `bucket-N`), and the archive writes a
mark (key `archive`) whose time stamp is the end of what a run archives. `nightjar status` reads the reports; the lake
keeps the offsets that the stream had consumed. Anybody may write to the topic; a member that a reader does not use may
hold anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, WithJsonSchema, with_config
from typing_extensions import TypedDict

from nightjar.contracts.json_text import ascii_json, json_object
from nightjar.contracts.record_type import DIALECT, INT64, Member, RecordType, Row, int64

# Larger than anything counted, and still exact as a double.
Count = Annotated[int, Field(ge=0, le=2**53)]
Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_report = with_config(ConfigDict(strict=True, extra="allow"))

_COUNT = {"type": "integer", "minimum": 0}
_OF_PARTITIONS = {
    "type": "object",
    "additionalProperties": {"type": "object", "additionalProperties": INT64 | {"minimum": 0}},
}
# Topic to partition to offset. `status` does not use it and accepts any value.
Offsets = Annotated[Any, WithJsonSchema(_OF_PARTITIONS)]
_OF_STREAMS = {"type": "object", "additionalProperties": INT64}
# Stream to µs since 1970.
Clocks = Annotated[Any, WithJsonSchema(_OF_STREAMS)]
_AnyText = Annotated[Any, WithJsonSchema({"type": "string"})]
_Unread = Annotated[Any, WithJsonSchema(_COUNT)]


@_report
class Lag(TypedDict):
    """How far behind a stream is: events waiting, seconds since the oldest of them arrived; end: the total number of
    events, so that two reports give the rates of arrival and consumption."""

    events: Count
    seconds: Number
    end: NotRequired[Count]


@_report
class Batches(TypedDict):
    """The micro-batches with rows since the last report, or in real time the groups. batch: the number of the last
    micro-batch; parts_ms: mean milliseconds by part."""

    batches: Count
    batch: NotRequired[_Unread]
    rows: Count
    most_rows: NotRequired[Count]
    parts_ms: dict[str, Number]
    slowest_ms: Number


@_report
class Priming(TypedDict):
    """The history that is being read for new versions of rules. route: the shuffle key; since: event time; read: the
    events read so far."""

    stream: str
    route: str
    since: str
    read: Count


@_report
class JobReport(Batches):
    """A report of the driver. mode: the `latency` that the query runs with; run_id: its run; at: the host's wall clock,
    µs; skew: µs by which that is ahead of the brokers'; lag: by stream; consumed: topic to partition to the offset
    after the last record that was read; began: topic to partition to the offset of the first event that the state can
    hold; clocks: stream to the clock, µs, that the query has taken in; priming: null if nothing is primed."""

    kind: Literal["job"]
    state: str
    mode: NotRequired[str]
    run_id: str
    process: Count
    at: Count
    skew: NotRequired[Annotated[int, Field(ge=-(2**53), le=2**53)] | None]
    lag: dict[str, Lag]
    consumed: NotRequired[Offsets]
    began: NotRequired[Offsets]
    clocks: NotRequired[Clocks]
    rules: NotRequired[Annotated[Any, WithJsonSchema({"type": "object", "additionalProperties": _COUNT})]]
    priming: NotRequired[Priming | None]


@_report
class BucketReport(TypedDict):
    """A report of a bucket. at: wall clock, µs; held: events in memory; entries, stored: entries and bytes of its state
    in the checkpoint; counts: since the checkpoint began; retained: events that are needed, per group-by (fields joined
    by commas); engine: host and process; restored: entries read since the last report;
    capped: with a cap, rule to hour (its begin, µs) to the alerts counted."""

    kind: Literal["bucket"]
    bucket: Count
    stream: str
    route: NotRequired[_AnyText]
    at: Count
    held: NotRequired[_Unread]
    entries: NotRequired[_Unread]
    stored: NotRequired[Count]
    counts: dict[str, Count]
    retained: dict[str, Count]
    parts_ms: NotRequired[
        Annotated[Any, WithJsonSchema({"type": "object", "additionalProperties": {"type": "number"}})]
    ]
    engine: NotRequired[_AnyText]
    restored: NotRequired[_Unread]
    capped: NotRequired[dict[str, dict[str, Count]]]


_REPORT: TypeAdapter[JobReport | BucketReport] = TypeAdapter(
    Annotated[JobReport | BucketReport, Field(discriminator="kind")]
)

DRIVER_KEY, ARCHIVE_KEY = b"job", b"archive"
ARCHIVE_MARK = ascii_json({"kind": "archive"})


def bucket_key(number: int) -> str:
    """The key of a bucket's reports."""
    return f"bucket-{number}"


def read_report(value: bytes) -> JobReport | BucketReport | None:
    """Decode a report, which may have additional members; None if the record holds no known report."""
    try:
        return _REPORT.validate_python(json_object(value))
    except ValidationError:
        return None


def is_of_another_kind(value: bytes) -> bool:
    """Whether a record that is not a report names another kind: other releases may have more kinds."""
    written = json_object(value)
    return written is not None and written.get("kind") not in (None, "job", "bucket")


def _is_progress(written: Mapping[str, Any], _row: Row) -> bool:
    """Reports of the driver have `consumed`, those of buckets have none."""
    consumed = written.get("consumed")
    return consumed is None or (isinstance(consumed, dict) and all(map(_are_offsets, consumed.values())))


def _are_offsets(value: Any) -> bool:
    return isinstance(value, dict) and all(
        partition.isascii() and partition.isdecimal() and len(partition) < 10 and int64(offset) >= 0
        for partition, offset in value.items()
    )


# What the lake keeps of any record of the topic.
PROGRESS = RecordType(
    "job_progress",
    "How far the stream had read.",
    {
        "state": Member("of the driver", optional=True),
        "consumed": Member("see JobReport", schema=_OF_PARTITIONS, is_json=True, optional=True),
        "began": Member("see JobReport", schema=_OF_PARTITIONS, is_json=True, optional=True),
        "clocks": Member("see JobReport", schema=_OF_STREAMS, is_json=True, optional=True),
    },
    _is_progress,
)


def offsets_of(text: str) -> dict[str, dict[int, int]] | None:
    """Topic to partition to offset, from a column; None if it holds anything else."""
    try:
        read = json.loads(text)
        offsets = {topic: {int(number): offset for number, offset in of.items()} for topic, of in read.items()}
    except (ValueError, AttributeError, RecursionError):
        return None
    given = [offset for of in offsets.values() for offset in of.values()]
    return offsets if all(type(offset) is int and 0 <= offset < 1 << 63 for offset in given) else None


def clocks_of(text: str) -> dict[str, int] | None:
    """Stream to its clock (µs), from a column; None if it holds anything else."""
    written = json_object(text.encode())
    if written is None or not all(type(clock) is int and -(1 << 63) <= clock < 1 << 63 for clock in written.values()):
        return None
    return dict(written)


def report_schema() -> Row:
    """The JSON Schema of the reports."""
    found = _REPORT.json_schema()
    return {
        "$schema": DIALECT,
        "title": "job_report",
        "description": "A report of the job's driver or of a bucket.",
    } | found
