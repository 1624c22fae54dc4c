"""The order of a group's events (S1.1), for those who show it to people: the engine has its own columns for it."""

from __future__ import annotations

import numpy as np

from nightjar.rules.engine.kernels.texts import hash_bytes


def order_key(time: int, event_id: str) -> tuple[int, int, bytes]:
    """What events are sorted by: event time (µs), then a hash of the id, then its bytes."""
    text = event_id.encode()
    return time, int(hash_bytes(np.frombuffer(text, np.uint8), 0, len(text))), text
