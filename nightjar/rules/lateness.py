"""The allowed lateness of the streams in a file, read without the slow imports of `nightjar.rules.streams`."""

from __future__ import annotations

import tomllib
from pathlib import Path

from nightjar.rules.durations import parse_duration
from nightjar.rules.errors import DeclarationError, NightjarError

SHIPPED = Path(__file__).with_name("streams.toml")
DEFAULT_ALLOWED_LATENESS = "10m"


def largest_allowed_lateness(path: Path | None = None) -> int:
    """The largest `allowed_lateness` (µs) of the streams declared in the TOML file at `path` (None: the shipped ones).

    It checks only what it needs of the file; `streams.load_streams` checks all of it.

    Raises:
        DeclarationError: the file cannot be read, or holds no such duration.
    """
    path = SHIPPED if path is None else Path(path)
    try:
        streams = tomllib.loads(path.read_text(encoding="utf-8"))["streams"].values()
        return max(parse_duration(stream.get("allowed_lateness", DEFAULT_ALLOWED_LATENESS)) for stream in streams)
    except (OSError, ValueError, KeyError, AttributeError, NightjarError) as failure:
        raise DeclarationError(
            f"the allowed lateness of its streams cannot be read: {failure}",
            where=str(path),
            remedy="Give a TOML file of stream declarations; `nightjar rules check` says what is wrong with one",
        ) from None
