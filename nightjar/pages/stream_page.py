"""The page of the stream: whether the job runs, how far behind it is, what it could not use, and what failed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse

from nightjar.configuration.settings import Settings
from nightjar.operations.stream_health import StreamHealth, read_health
from nightjar.pages.rendering import Rendering
from nightjar.rules.streams import Stream

# Everybody who looks within so many seconds sees the same reading of Kafka's topics, which takes about a second.
_FRESH = 4.0
# Seconds by which the clock of the job's host may be off.
_SKEW = 2.0
# What the job counts since its checkpoint was made, in the words of `nightjar status`.
COUNTED = {
    "events": "seen",
    "late": "late",
    "duplicates": "duplicates",
    "announced": "alert records",
    "overflow": "overflow",
}


class StreamReader:
    """Reads the state of the stream, for all readers of a process at once."""

    def __init__(self, settings: Settings, streams: Mapping[str, Stream]) -> None:
        self._settings, self._streams = settings, streams
        self._lock = threading.Lock()
        self._read: tuple[float, StreamHealth] | None = None

    def health(self) -> StreamHealth:
        """The state, at most some seconds old.

        Raises:
            KafkaError: Kafka cannot be read.
        """
        with self._lock:
            if self._read is None or time.monotonic() - self._read[0] > _FRESH:
                self._read = None  # a failure is not remembered
                found = read_health(self._settings, self._streams)
                self._read = time.monotonic(), found
            return self._read[1]


def add_stream(app: FastAPI, rendering: Rendering, stream: Callable[[], StreamReader], guard: Any) -> None:
    """Add the page."""

    @app.get("/stream", dependencies=[guard])
    def page(request: Request) -> HTMLResponse:
        health = stream().health()
        status = health.status
        skew = 0 if status.last is None else (status.last.get("skew") or 0) / 1_000_000
        return rendering.page(
            request,
            "stream.html",
            health=health,
            status=status,
            last=status.last,
            counted=COUNTED,
            skew=skew if abs(skew) > _SKEW else None,
            outlook={name: _outlook(each.caught_up_in) for name, each in status.pace.items()},
        )


def _outlook(seconds: float | None) -> str:
    if seconds is None:
        return "not catching up at this rate"
    return f"caught up in about {timedelta(seconds=round(seconds))}"
