"""Records that cannot be used: the records of the quarantine topic, keyed by their Kafka coordinates."""

from __future__ import annotations

import base64

from nightjar.contracts.record_type import Member, RecordType, Row
from nightjar.rules.events import QUARANTINE_REASONS, Rejection
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import iso_text
from nightjar.rules.types import Kind

# Bytes of an unusable record that its quarantine record repeats. A megabyte in Base64 would be more than Kafka takes;
# the whole record is still in Kafka, and in the lake.
MAX_ORIGINAL = 65_536

QUARANTINED = RecordType(
    "quarantined_record",
    "A record of a stream's topic that cannot be used, and why.",
    {
        "reason": Member("what is wrong, as a code", schema={"enum": [reason.value for reason in QUARANTINE_REASONS]}),
        "detail": Member("the same, for a person"),
        "stream": Member("the stream of its topic"),
        "topic": Member("its topic"),
        "partition": Member("its partition there", Kind.INT64),
        "offset": Member("its offset there", Kind.INT64),
        "arrival_time": Member("when it arrived", Kind.TIMESTAMP),
        "size": Member("how many bytes its value has", Kind.INT64, {"minimum": 0}),
        "original": Member(
            f"the first {MAX_ORIGINAL:,} bytes of its value, in Base64", schema={"contentEncoding": "base64"}
        ),
    },
)


def quarantine_record(
    rejection: Rejection, stream: Stream, *, partition: int, offset: int, arrival: int, raw: bytes
) -> tuple[str, Row]:
    """A record that cannot be used: (key, value). arrival: µs; raw: its bytes, of which MAX_ORIGINAL are repeated."""
    value = {
        "reason": rejection.reason.value,
        "detail": rejection.detail,
        "stream": stream.name,
        "topic": stream.topic,
        "partition": partition,
        "offset": offset,
        "arrival_time": iso_text(arrival),
        "size": len(raw),
        "original": base64.b64encode(raw[:MAX_ORIGINAL]).decode(),
    }
    return f"{stream.topic}-{partition}-{offset}", value
