"""What is kept beside Spark's checkpoint, and whether a checkpoint fits the job that would go on from it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rules.streams import Stream
from streaming.config import JobConfig, JobError
from streaming.rulebook import Route

FORMAT = 1
_FILE = "nightjar.json"


@dataclass(frozen=True)
class Identity:
    """A checkpoint's name, drawn when it is made, and the routes its buckets are numbered by."""

    name: str
    routes: tuple[Route, ...]


def query_folder(config: JobConfig) -> Path:
    """Spark's own part of the checkpoint."""
    return config.checkpoint / "query"


def refuse_unfit(config: JobConfig) -> None:
    """Raise what `settle` will, as far as that can be said without the rules: before Spark is started."""
    _found(config)


def settle(config: JobConfig, routes: list[Route]) -> Identity:
    """Check the checkpoint against the job and keep what is new; makes the file for a new checkpoint.

    routes: all that the streams and rules ask for; those the checkpoint does not have yet are numbered last. Raises
    JobError with a remedy where the checkpoint was written with other buckets or another declaration of a stream.
    """
    found = _found(config)
    kept = [Route(r["stream"], r["field"]) for r in found["routes"]]
    if not set(kept) <= set(routes):
        raise _unfit(config, "its routes are not those of the rules topic", "Name the rules topic it was made with")
    # A stream that was declared later has its entity fields before the routes that rules have asked for.
    numbered = kept + [route for route in routes if route not in kept]
    wanted = {
        "format": FORMAT,
        "name": found["name"],
        "buckets": config.buckets,
        "shuffle_partitions": config.shuffle_partitions,
        "streams": {name: _declaration(stream) for name, stream in config.streams.items()},
        "routes": [{"stream": route.stream, "field": route.field} for route in numbered],
    }
    config.checkpoint.mkdir(parents=True, exist_ok=True)
    path = config.checkpoint / _FILE
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(wanted, indent=1))
    partial.replace(path)
    return Identity(found["name"], tuple(numbered))


def committed_offsets(config: JobConfig) -> Mapping[str, Mapping[int, int]]:
    """Topic -> partition -> the offset after the last record of the last batch that was committed; empty before."""
    commits = query_folder(config) / "commits"
    done = [int(file.name) for file in commits.iterdir() if file.name.isdigit()] if commits.is_dir() else []
    if not done:
        return {}
    lines = (query_folder(config) / "offsets" / str(max(done))).read_text().splitlines()
    # a line of version, a line of Spark's settings, then one for each source: there is one
    return {topic: {int(p): offset for p, offset in of.items()} for topic, of in json.loads(lines[2]).items()}


def _declaration(stream: Stream) -> dict[str, Any]:
    return {
        "topic": stream.topic,
        "event_id": stream.event_id,
        "event_time": stream.event_time,
        "entities": list(stream.entities),
        "fields": {name: str(kind) for name, kind in stream.fields.items()},
    }


def _found(config: JobConfig) -> dict[str, Any]:
    """What a checkpoint that fits has kept; a new name where there is none yet."""
    path = config.checkpoint / _FILE
    if path.exists():
        found = _read(path, config)
        _check(found, config)
        return found
    if query_folder(config).exists():
        raise _unfit(config, f"{_FILE} is missing", "Name a folder of nightjar alone")
    return {"name": uuid.uuid4().hex, "routes": []}


def _read(path: Path, config: JobConfig) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except ValueError:
        raise _unfit(config, f"{_FILE} is not JSON", "Put back what was there") from None
    if found.get("format") != FORMAT:
        raise _unfit(config, f"its format is {found.get('format')}, this version reads {FORMAT}", "Run its version")
    return found


def _check(found: Mapping[str, Any], config: JobConfig) -> None:
    for setting in ("buckets", "shuffle_partitions"):
        was, now = found[setting], getattr(config, setting)
        if was != now:
            raise _unfit(
                config, f"it was made with {setting} = {was}, and the setting is {now}", f"Set {setting} = {was}"
            )
    for name, kept in found["streams"].items():
        if name not in config.streams:
            raise _unfit(config, f"it holds events of stream {name}, which is no longer declared", f"Declare {name}")
        now = _declaration(config.streams[name])
        for key, value in kept.items():
            if now[key] != value:
                remedy = "Declare it as it was"
                raise _unfit(config, f"streams.{name}.{key} was {value} and is {now[key]}", remedy)


def _unfit(config: JobConfig, what: str, remedy: str) -> JobError:
    start_anew = "or set checkpoint_dir to a new folder: the job then reads the topics from their beginning"
    return JobError(what, where=f"checkpoint {config.checkpoint}", remedy=f"{remedy}, {start_anew}")
