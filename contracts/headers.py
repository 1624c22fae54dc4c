"""The header of events and alerts: `sent_at`, the wall clock of an event's sending, µs since 1970 as decimal text.

An alert takes over its event's. It serves to measure latency, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

SENT_AT = "sent_at"

# More digits than fit 64 bits mean nothing.
_SENT_AT = re.compile(rb"[0-9]{1,18}")


def sent_now(now: int) -> list[tuple[str, bytes]]:
    """The headers of an event that is sent now. now: wall clock, µs."""
    return [(SENT_AT, b"%d" % now)]


def sent_at(headers: Iterable[tuple[str, bytes | None]] | None) -> int | None:
    """When the event was sent, µs; None where the first such header is none."""
    sent = next((value for name, value in headers or () if name == SENT_AT), None)
    return int(sent) if isinstance(sent, bytes) and _SENT_AT.fullmatch(sent) else None
