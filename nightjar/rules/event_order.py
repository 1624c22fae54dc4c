"""The order of a group's events (S1.1), for those who show it to people: the engine has its own columns for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from nightjar.rules.engine.kernels.texts import hash_bytes


def order_key(time: int, event_id: str, tie: Any = None) -> tuple[Any, ...]:
    """What events are sorted by: event time (µs), then the tie-breaker, NULL last, then a hash of the id, then its
    bytes. tie: the value of the stream's tie-breaker; None where it has none."""
    text = event_id.encode()
    hashed = int(hash_bytes(np.frombuffer(text, np.uint8), 0, len(text)))
    return time, tie is None, 0 if tie is None else tie, hashed, text
