"""The id of an alert. Apart from the engine, so that who only reads records need not import that."""

from __future__ import annotations

import hashlib


def alert_id(rule_id: str, version: int, event_id: str, event_time: int) -> str:
    """32 hexadecimal digits of BLAKE2b over the rule id, the version, the event id and the event time (µs).

    The time is in it because an id may be used again for another event, once the first is before the horizon.
    """
    return hashlib.blake2b(f"{rule_id}\0{version}\0{event_id}\0{event_time}".encode(), digest_size=16).hexdigest()
