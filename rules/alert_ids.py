"""The id of an alert. Apart from the engine, so that who only reads records need not import that."""

from __future__ import annotations

import hashlib


def alert_id(rule_id: str, version: int, event_id: str) -> str:
    """32 hexadecimal digits of BLAKE2b over the rule id, the version and the event id."""
    return hashlib.blake2b(f"{rule_id}\0{version}\0{event_id}".encode(), digest_size=16).hexdigest()
