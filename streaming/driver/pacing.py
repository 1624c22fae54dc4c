"""What the driver's loop does at intervals."""

import time


class Every:
    """Due at once, and then at most once in so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next = 0.0

    def due(self) -> bool:
        """Whether it is to be done now."""
        if time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + self._seconds
        return True
