"""The id of an alert. Separate from the engine, which readers of records need not import."""

from __future__ import annotations

import hashlib


def alert_id(rule_id: str, version: int, event_id: str, event_time: int, group: str) -> str:
    """32 hexadecimal digits of BLAKE2b over the rule id, the version, the event id, the event time and the group.

    event_time: µs; part of the id because an event id may be reused for another event once the first is before the
    horizon. group: its JSON, as `canonical` writes it; part of the id because two events with one id and different
    groups go to different buckets, which are independent.
    """
    about = f"{rule_id}\0{version}\0{event_id}\0{event_time}\0{group}"
    return hashlib.blake2b(about.encode(), digest_size=16).hexdigest()
