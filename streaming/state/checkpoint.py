"""nightjar's metadata beside Spark's checkpoint, and the check that a job can resume from it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from nightjar.rules.rulebook import ShuffleKey
from nightjar.rules.streams import Stream, optional_field
from nightjar.storage.objects import ObjectPath
from nightjar.storage.paths import AnyPath, names_in, remove_tree, write_whole
from nightjar.streaming.config import JobConfig, JobError
from nightjar.streaming.partitioning import buckets_of
from nightjar.streaming.state import state_files
from nightjar.streaming.state.epochs import METADATA, QUERY, own_folder
from nightjar.streaming.state.state_files import begin, files_of
from nightjar.streaming.state.statelog import Head

# Increased by any change of a format that older code wrote: this file, the numbering of buckets (partitioning.py),
# their state (state_files.py, statelog.py, the engine's Delta), or the query's sources. 6: heads have their run's id.
# 7: shuffle keys may be dropped. 8: texts in the state may be dictionary-encoded.
FORMAT = 8
_READ = (5, 6, 7, 8)
_REBUILD = "nightjar stream rebuild"
_REBUILT = "rebuilt-"

Offsets = Mapping[str, Mapping[int, int]]
K = TypeVar("K", str, int)


@dataclass(frozen=True)
class Identity:
    """A checkpoint's name, random when it is created, and the shuffle keys that number its buckets.

    began: the first offsets of events in its state; a partition without one is in it from its beginning. added: by
    number, those of shuffle keys that were added later, for the partitions of their stream. dropped: the numbers of
    shuffle keys that are out of use and have no state (S5.8).
    """

    name: str
    shuffle_keys: tuple[ShuffleKey, ...]
    began: Offsets = field(default_factory=dict)
    added: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    dropped: frozenset[int] = frozenset()

    @property
    def in_use(self) -> list[ShuffleKey]:
        """The shuffle keys that events are sent to."""
        return [key for number, key in enumerate(self.shuffle_keys) if number not in self.dropped]

    def lacks_before(self, number: int, topic: str) -> Mapping[int, int]:
        """By partition of the topic the first offset that the state of the key of this number can have, if not 0."""
        of_key = self.added.get(number, self.began.get(topic, {}))
        return {partition: offset for partition, offset in of_key.items() if offset}


def query_folder(config: JobConfig) -> AnyPath:
    """Spark's own part of the checkpoint."""
    return _folder(config) / QUERY


def committed_state(config: JobConfig, run: str, exports: Collection[str] = ()) -> AnyPath:
    """The folder of the buckets' state (see state_files.py); this run resumes at the last committed batch.

    exports: of history that are not taken in yet.
    """
    folder, last = state_folder(config), _committed(config)
    version = None if last is None else last + 1
    begin(folder, version, run, exports, last=run_file(config), fence=config.fence)
    return folder


def last_run(config: JobConfig) -> tuple[Identity, str] | None:
    """The checkpoint as the last run of the job left it, and that run's id; None if there is no checkpoint yet."""
    if not _metadata(config).is_file():
        return None
    found = _found(config)
    shuffle_keys = tuple(ShuffleKey(r["stream"], r["field"]) for r in found["routes"])
    identity = Identity(found["name"], shuffle_keys, _numbered(found.get("began", {})), _added(found), _dropped(found))
    return identity, state_files.last_run(run_file(config))


def state_folder(config: JobConfig) -> AnyPath:
    """The folder of the buckets' state. In an object store all holders of the lease share it: its names are unique."""
    return (config.checkpoint / str(_kept(config).get("folder", "")) / "state").resolve()


def run_file(config: JobConfig) -> AnyPath:
    """The file with the id of the run whose heads count."""
    in_store = isinstance(config.checkpoint, ObjectPath)
    return (_folder(config) if in_store else state_folder(config)) / state_files.RUN


def committed_heads(config: JobConfig, run: str, buckets: Iterable[int]) -> list[Head]:
    """The heads of these buckets after the last committed batch of this run.

    Raises RuntimeError (STATE_LOST) also where a batch that is committed meanwhile has removed one: read them again.
    """
    folder, last = state_folder(config), _committed(config)
    version = 0 if last is None else last + 1
    return [files_of(folder, bucket, run).before(version + 1) for bucket in buckets]


def refuse_overtaken(config: JobConfig) -> None:
    """Raise LostLeaseError if another job has taken over the checkpoint."""
    if config.fence is not None:
        config.fence.check()


def refuse_unfit(config: JobConfig) -> None:
    """Raise what `settle` would, as far as that is known without the rules: before Spark is started."""
    _found(config)


@contextmanager
def rebuilding(config: JobConfig, keys: list[ShuffleKey], begins: Offsets) -> Iterator[tuple[Identity, AnyPath]]:
    """Write a new checkpoint: yields its identity and the folder for its state.

    begins: the offsets from which it resumes. When the block succeeds, the new checkpoint replaces the old one by
    replacing one file; until then, and if the block fails, the old one is unchanged.
    """
    _remove_others(config)
    name = uuid.uuid4().hex
    folder = config.checkpoint / f"{_REBUILT}{name[:12]}"
    state = folder / "state"
    state.mkdir(parents=True)
    try:
        yield Identity(name, tuple(keys)), state
    except BaseException:
        remove_tree(folder)
        raise
    _write(config, {"name": name, "folder": folder.name, "begins": begins}, keys)
    _remove_others(config)


def settle(
    config: JobConfig,
    shuffle_keys: list[ShuffleKey],
    begins: Callable[[], Offsets] = dict,
    *,
    unused: Collection[ShuffleKey] = (),
    wanted: Collection[ShuffleKey] = (),
) -> Identity:
    """Check the checkpoint against the job and store what is new; creates the file for a new checkpoint.

    shuffle_keys: all that the streams and rules have needed; those that the checkpoint lacks are numbered last. begins:
    the first offsets of events that Kafka has, called for a new checkpoint only. unused: shuffle keys to drop with
    their state. wanted: shuffle keys to take into use again, without state, if they were dropped. Raises JobError with
    a remedy if the checkpoint was written with other buckets or another declaration of a stream.
    """
    found = _found(config)
    is_new = not _metadata(config).is_file()
    found.setdefault("began", begins() if is_new else {})
    kept = [ShuffleKey(r["stream"], r["field"]) for r in found["routes"]]
    if not set(kept) <= set(shuffle_keys):
        raise _unfit(config, "its routes are not those of the rules", "Name the rule_status_topic it was made with")
    # A stream that was declared later has its entity fields before the shuffle keys that rules need.
    numbered = kept + [key for key in shuffle_keys if key not in kept]
    added, before = _added(found), _dropped(found)
    again = {number for number in before if numbered[number] in wanted}
    if not is_new:
        read = committed_offsets(config)
        topics = {name: stream.topic for name, stream in config.streams.items()}
        fresh = {n: read.get(topics.get(r.stream, "")) for n, r in enumerate(numbered) if r not in kept or n in again}
        added |= {number: offsets for number, offsets in fresh.items() if offsets}
    dropped = (before | {number for number, key in enumerate(numbered) if key in unused}) - again
    # What they had is removed while they are dropped: after a crash it is removed again, and never read.
    _remove_state(config, again, numbered)
    _write(config, found, numbered, added, dropped)
    _remove_state(config, dropped, numbered)
    return Identity(found["name"], tuple(numbered), _numbered(found["began"]), added, frozenset(dropped))


def _remove_state(config: JobConfig, numbers: Iterable[int], shuffle_keys: list[ShuffleKey]) -> None:
    for number in numbers:
        state_files.remove(state_folder(config), buckets_of(number, shuffle_keys[number], config.buckets), config.fence)


def committed_offsets(config: JobConfig) -> Offsets:
    """Topic -> partition -> the offset after the last record of the last batch that was committed.

    Before the first batch: where a rebuilt checkpoint begins; empty for any other.
    """
    last = _committed(config)
    if last is None:
        read = _kept(config).get("begins", {})
    else:
        lines = (query_folder(config) / "offsets" / str(last)).read_text().splitlines()
        # a line with the version, one with Spark's settings, then one per source: "-" if it had nothing yet
        read = {topic: of for line in lines[2:] if line != "-" for topic, of in json.loads(line).items()}
    return _numbered(read)


def _added(found: Mapping[str, Any]) -> dict[int, Mapping[int, int]]:
    return _numbered({number: r["began"] for number, r in enumerate(found["routes"]) if "began" in r})


def _dropped(found: Mapping[str, Any]) -> frozenset[int]:
    return frozenset(number for number, r in enumerate(found["routes"]) if r.get("dropped"))


def _numbered(offsets: Mapping[K, Mapping[Any, int]]) -> dict[K, Mapping[int, int]]:
    """Partitions as numbers: JSON keys are strings."""
    return {topic: {int(p): offset for p, offset in of.items()} for topic, of in offsets.items()}


def _committed(config: JobConfig) -> int | None:
    """The last batch that was committed."""
    done = [int(name) for name in names_in(query_folder(config) / "commits") if name.isdigit()]
    return max(done, default=None)


def _folder(config: JobConfig) -> AnyPath:
    return own_folder(config.checkpoint, config.fence) / str(_kept(config).get("folder", ""))


def _metadata(config: JobConfig) -> AnyPath:
    return own_folder(config.checkpoint, config.fence) / METADATA


def _kept(config: JobConfig) -> dict[str, Any]:
    """The content of the file, if any; `_found` checks whether it fits."""
    try:
        kept = json.loads(_metadata(config).read_text())
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def _write(
    config: JobConfig,
    kept: Mapping[str, Any],
    shuffle_keys: list[ShuffleKey],
    added: Mapping[int, Mapping[int, int]] | None = None,
    dropped: Collection[int] = (),
) -> None:
    wanted = {
        **{key: kept[key] for key in ("name", "folder", "begins", "began") if key in kept},
        "format": FORMAT,
        "buckets": config.buckets,
        "streams": {name: _declaration(stream) for name, stream in config.streams.items()},
        "routes": [
            {"stream": key.stream, "field": key.field}
            | ({"began": added[number]} if added and number in added else {})
            | ({"dropped": True} if number in dropped else {})
            for number, key in enumerate(shuffle_keys)
        ],
    }
    write_whole(_metadata(config), json.dumps(wanted, indent=1).encode())


def _remove_others(config: JobConfig) -> None:
    """Remove what earlier checkpoints and interrupted rebuilds left in this folder."""
    ours = query_folder(config)
    own, state = own_folder(config.checkpoint, config.fence), state_folder(config)
    found = [
        *config.checkpoint.glob(f"{_REBUILT}*"),
        *own.glob(f"{_REBUILT}*"),
        own / QUERY,
        config.checkpoint / "state",
    ]
    others = [old for old in found if old not in (ours, ours.parent, state, state.parent) and old.is_dir()]
    refuse_overtaken(config)
    for old in others:
        remove_tree(old)


def _declaration(stream: Stream) -> dict[str, Any]:
    return {
        "topic": stream.topic,
        "event_id": stream.event_id,
        "event_time": stream.event_time,
        "entities": list(stream.entities),
        "fields": {name: str(kind) for name, kind in stream.fields.items()},
        "optional": sorted(stream.optional),
    }


def _found(config: JobConfig) -> dict[str, Any]:
    """The identity of a checkpoint that fits; a new one if there is none yet."""
    path = _metadata(config)
    if path.is_file():
        found = _read(path, config)
        _check(found, config)
        return found
    if query_folder(config).exists():
        raise _unfit(config, f"{METADATA} is missing", f"If the folder is nightjar's, `{_REBUILD}` writes a new one")
    return {"name": uuid.uuid4().hex, "routes": []}


def _read(path: AnyPath, config: JobConfig) -> dict[str, Any]:
    put_back = f"Put back what was there, or `{_REBUILD}` writes a new one from the lake"
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        written = found["format"]
    except (ValueError, KeyError, TypeError):
        raise _unfit(config, f"{METADATA} is not what nightjar wrote", put_back) from None
    if written not in _READ:
        what = f"its format is {written}, this release reads {_READ[0]} to {_READ[-1]}"
        raise _unfit(config, what, f"`{_REBUILD}` writes a new one from the lake; or run the release that wrote it")
    lacking = [key for key in ("name", "buckets", "streams", "routes") if key not in found]
    if lacking:
        raise _unfit(config, f"{METADATA} lacks {', '.join(lacking)}", put_back)
    return found


def _check(found: Mapping[str, Any], config: JobConfig) -> None:
    if found["buckets"] != config.buckets:
        what = f"it was made with buckets = {found['buckets']}, and the setting is {config.buckets}"
        command = f"{_REBUILD} --buckets {config.buckets}"
        raise _unfit(config, what, f"Set buckets = {found['buckets']}, or `{command}` writes a new one from the lake")
    for name, kept in found["streams"].items():
        if name not in config.streams:
            what = f"it holds events of stream {name}, which is no longer declared"
            raise _unfit(config, what, f"Declare {name}, or `{_REBUILD}` writes a new one without it")
        _check_fields(config, config.streams[name], kept)
        now = _declaration(config.streams[name])
        for key, value in kept.items():
            if key not in ("fields", "optional") and now[key] != value:
                what = f"streams.{name}.{key} was {_shown(value)} and is {_shown(now[key])}"
                # the offsets are those of the old topic
                rebuild = "" if key == "topic" else f", or `{_REBUILD}` writes a new one from the lake"
                raise _unfit(config, what, f"Declare it as it was{rebuild}")


def _check_fields(config: JobConfig, stream: Stream, kept: Mapping[str, Any]) -> None:
    """Optional fields may be added, and fields may become optional: state without a field has NULL for it."""
    was, place = kept["fields"], f"streams.{stream.name}.fields"
    for name, kind in was.items():
        if name not in stream.fields:
            remedy = f"Declare it, or `{_REBUILD}` writes a new one without it"
            raise _unfit(config, f"{place}.{name} was {kind} and is no longer declared", remedy)
        if str(stream.fields[name]) != kind:
            raise _unfit(config, f"{place}.{name} was {kind} and is {stream.fields[name]}", "Declare it as it was")
    # checkpoints older than optional fields name none
    added, optional = stream.fields.keys() - was.keys(), set(kept.get("optional", []))
    for name in sorted((added | optional) - stream.optional):
        what = "was optional and is not" if name in was else "is new, and the events before it lack it"
        remedy = f"Declare it optional: {optional_field(name, stream.fields[name])}"
        raise _unfit(config, f"{place}.{name} {what}", remedy)


def _shown(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict | list) else str(value)


def _unfit(config: JobConfig, what: str, remedy: str) -> JobError:
    fresh = "A new folder as checkpoint_dir starts from nothing: the job then reads the topics from their beginning"
    return JobError(what, where=f"checkpoint {config.checkpoint}", remedy=f"{remedy}. {fresh}")
