"""The header of events and alerts: `sent_at`, the wall clock of an event's sending, µs since 1970 as decimal text.

An alert has its event's. It is used to measure latency, and for nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

SENT_AT = "sent_at"

# At most as many digits as always fit in 64 bits.
_SENT_AT = re.compile(rb"[0-9]{1,18}")


def sent_now(now: int) -> list[tuple[str, bytes]]:
    """The headers of an event that is sent now. now: wall clock, µs."""
    return [(SENT_AT, b"%d" % now)]


def sent_at(headers: Iterable[tuple[str, bytes | None]] | None) -> int | None:
    """When the event was sent, µs; None if the first such header is missing or invalid."""
    sent = next((value for name, value in headers or () if name == SENT_AT), None)
    return int(sent) if isinstance(sent, bytes) and _SENT_AT.fullmatch(sent) else None
