"""The id of an alert. Apart from the engine, so that who only reads records need not import that."""

from __future__ import annotations

import hashlib


def alert_id(rule_id: str, version: int, event_id: str, event_time: int, group: str) -> str:
    """32 hexadecimal digits of BLAKE2b over the rule id, the version, the event id, the event time and the group.

    event_time: µs; it is in the id because an event's id may be used again for another event, once the first is before
    the horizon. group: its JSON, as `canonical` writes it; it is in the id because two events of one id that belong to
    different groups are seen by different buckets, which know nothing of each other.
    """
    about = f"{rule_id}\0{version}\0{event_id}\0{event_time}\0{group}"
    return hashlib.blake2b(about.encode(), digest_size=16).hexdigest()
