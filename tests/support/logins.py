"""Logins of one person, one after the other, and a rule that counts them: each says how many came before it."""

import json
from typing import Any

from nightjar.cases.model import Message
from nightjar.rules.timestamps import iso_text, parse_timestamp

NOON = parse_timestamp("2026-01-05T12:00:00Z", zone_required=True) or 0


def login(number: int) -> Message:
    """An event of its own, later than those with lower numbers."""
    event = {
        "login_id": f"l{number}",
        "event_time": iso_text(NOON + number),
        "customer_id": "ann",
        "ip": "::1",
        "device": "d",
        "status": "OK",
    }
    return Message("logins", json.dumps(event).encode())


def more_than(logins: int, name: str = "many") -> dict[str, Any]:
    """A rule about more than so many logins."""
    return {
        "id": name,
        "stream": "logins",
        "group_by": ["customer_id"],
        "measures": {"n": {"count": "*", "over": "1h"}},
        "when": f"n > {logins}",
        "description": "{n}",
    }
