"""Late events: the records of the late-events topic, keyed by the event's id. The stream writes them by column
(contracts.columns).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nightjar.contracts.record_type import Member, RecordType, Row
from nightjar.rules.types import Kind


def _is_late_event(written: Mapping[str, Any], row: Row) -> bool:
    return (
        all(isinstance(written.get(name), str) for name in ("stream", "event_id"))
        and row["event_time"] is not None
        and isinstance(written.get("event"), dict)
    )


LATE_EVENT = RecordType(
    "late_event",
    "An event that arrived later than its stream allows: counted from now on, and evaluated by the nightly backfill.",
    {
        "stream": Member("its stream"),
        "event_id": Member("its id"),
        "event_time": Member("its event time", Kind.TIMESTAMP),
        "arrival_time": Member("when it arrived", Kind.TIMESTAMP),
        "partition": Member("its partition of the stream's topic", Kind.INT64),
        "offset": Member("its offset there", Kind.INT64),
        "event": Member("its fields; decimals and times are text", schema={"type": "object"}, is_json=True),
    },
    _is_late_event,
)
