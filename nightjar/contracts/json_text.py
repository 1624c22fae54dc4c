"""Encode and decode the JSON of records. Ids are hashes of `nightjar.rules.canonical`, not of this."""

from __future__ import annotations

import json
from typing import Any

# As deep as an event may be.
_MAX_NESTING = 100


def json_text(value: Any) -> str:
    """A record's value as text. It keeps half a surrogate pair of a string, which UTF-8 cannot encode."""
    return json.dumps(value, ensure_ascii=False)


def ascii_json(value: Any) -> bytes:
    """A record's value in ASCII, which can encode any string."""
    return json.dumps(value).encode()


def json_object(value: bytes) -> dict[str, Any] | None:
    """The JSON object that a record holds; None if it holds none, or one nested deeper than an event may be."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    level: list[Any] = [found]
    for _ in range(_MAX_NESTING):
        level = [each for held in level for each in _held(held)]
        if not level:
            return found
    return None


def _held(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
