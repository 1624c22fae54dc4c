"""nightjar's metadata beside Spark's checkpoint: its form on disk, and which job may resume from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import msgspec

from nightjar.rules.rulebook import ShuffleKey
from nightjar.rules.streams import Stream, optional_field
from nightjar.storage.paths import AnyPath
from nightjar.streaming.config import Latency
from nightjar.streaming.state.epochs import METADATA, own_folder

# Increased by any change of a format that older code wrote: this file, the numbering of buckets (partitioning.py),
# their state (state_files.py, statelog.py, the engine's Delta), or the query's sources. 6: heads have their run's id.
# 7: shuffle keys may be dropped. 8: texts in the state may be dictionary-encoded.
FORMAT = 8
_READ = (5, 6, 7, 8)
REBUILD = "nightjar stream rebuild"

# Of a new checkpoint. In real time one process has all buckets, and each that a group touches takes its time.
_BUCKETS: dict[Latency, int] = {"micro-batch": 4, "real-time": 1}

Offsets = Mapping[str, Mapping[int, int]]


class Misfit(NamedTuple):
    """Why a job cannot resume from a checkpoint, and what to do about it."""

    what: str
    remedy: str


class Declaration(msgspec.Struct, frozen=True):
    """What the state depends on in the declaration of a stream."""

    topic: str
    """Of a union those of its members, in their order, with + between them."""
    event_id: str
    event_time: str
    entities: list[str]
    fields: dict[str, str]
    """Their types, by name."""
    optional: list[str] = []
    """Checkpoints older than optional fields name none."""
    tiebreaker: str | msgspec.UnsetType = msgspec.UNSET
    """It decides the order in which the state's alerts were found."""
    union: dict[str, dict[str, str]] | msgspec.UnsetType = msgspec.UNSET
    """Of a union: by each member's name in it, the member's fields by their names there."""

    @classmethod
    def of(cls, stream: Stream) -> Self:
        """That of a stream as it is declared now."""
        fields = {name: str(kind) for name, kind in stream.fields.items()}
        return cls(
            "+".join(stream.topics),
            stream.event_id,
            stream.event_time,
            list(stream.entities),
            fields,
            sorted(stream.optional),
            stream.tiebreaker or msgspec.UNSET,
            {member.alias: dict(member.fields) for member in stream.members} or msgspec.UNSET,
        )

    def misfit(self, stream: Stream) -> Misfit | None:
        """Why the stream as it is declared now does not have this state; None if it has."""
        now = Declaration.of(stream)
        if (found := self._misfit_of_fields(stream) or self._misfit_of_members(stream.name, now)) is not None:
            return found
        for name in ("topic", "event_id", "event_time", "tiebreaker", "entities"):
            was, here = getattr(self, name), getattr(now, name)
            if was != here:
                # the offsets are those of the old topic
                rebuild = "" if name == "topic" else f", or `{REBUILD}` writes a new one from the lake"
                what = f"streams.{stream.name}.{name} was {_shown(was)} and is {_shown(here)}"
                return Misfit(what, f"Declare it as it was{rebuild}")
        return None

    def _misfit_of_fields(self, stream: Stream) -> Misfit | None:
        """Optional fields may be added, and fields may become optional: state without a field has NULL for it."""
        place = f"streams.{stream.name}.fields"
        for name, kind in self.fields.items():
            if name not in stream.fields:
                remedy = f"Declare it, or `{REBUILD}` writes a new one without it"
                return Misfit(f"{place}.{name} was {kind} and is no longer declared", remedy)
            if str(stream.fields[name]) != kind:
                return Misfit(f"{place}.{name} was {kind} and is {stream.fields[name]}", "Declare it as it was")
        added = stream.fields.keys() - self.fields.keys()
        for name in sorted((added | {*self.optional}) - stream.optional):
            what = "was optional and is not" if name in self.fields else "is new, and the events before it lack it"
            remedy = f"Declare it optional: {optional_field(name, stream.fields[name])}"
            return Misfit(f"{place}.{name} {what}", remedy)
        return None

    def _misfit_of_members(self, stream: str, now: Declaration) -> Misfit | None:
        """A member's name is in its events' ids, and events in the state have values under the names of that time."""
        if self.topic != now.topic or not isinstance(self.union, dict) or not isinstance(now.union, dict):
            return None  # the topics say so
        remedy = f"Declare it as it was, or `{REBUILD}` writes a new one from the lake"
        if (was := [*self.union]) != (names := [*now.union]):
            return Misfit(f"streams.{stream}.union was {_shown(was)} and is {_shown(names)}", remedy)
        for alias, fields in self.union.items():
            for name, field in fields.items():
                if (here := now.union[alias].get(name, msgspec.UNSET)) != field:
                    return Misfit(f"streams.{stream}.fields.{name}.{alias} was {field} and is {_shown(here)}", remedy)
        return None


class NumberedKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """A shuffle key of a checkpoint; its place among them numbers its buckets."""

    stream: str
    field: str
    began: Mapping[int, int] = {}
    """By partition the first offset of events in its state, if it was added later than the checkpoint's others."""
    dropped: bool = False
    """Whether it is out of use and has no state (S5.8)."""

    @property
    def key(self) -> ShuffleKey:
        """The shuffle key itself."""
        return ShuffleKey(self.stream, self.field)


class Metadata(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A checkpoint's name, what it was made with, and the shuffle keys that number its buckets."""

    name: str
    """Random; of one checkpoint."""
    folder: str = ""
    """Of a rebuilt one: where Spark's logs and the state are."""
    begins: Offsets | None = None
    """The offsets from which the job reads before its first batch is committed."""
    began: Offsets | None = None
    """The first offsets of events in the state; a partition without one is in it from its beginning."""
    format: int
    buckets: int
    streams: dict[str, Declaration]
    numbered: tuple[NumberedKey, ...] = msgspec.field(name="routes")

    @property
    def shuffle_keys(self) -> tuple[ShuffleKey, ...]:
        """All that there have been, in the order of their numbers."""
        return tuple(each.key for each in self.numbered)

    @property
    def dropped(self) -> frozenset[int]:
        """The numbers of those out of use."""
        return frozenset(number for number, each in enumerate(self.numbered) if each.dropped)

    @property
    def in_use(self) -> list[ShuffleKey]:
        """The shuffle keys that events are sent to."""
        return [each.key for each in self.numbered if not each.dropped]

    def lacks_before(self, number: int, stream: Stream) -> Mapping[int, int]:
        """By partition of its stream the first offset that the state of the key of this number can have, if not 0."""
        of_key = self.numbered[number].began or stream.by_partition(self.began or {})
        return {partition: offset for partition, offset in of_key.items() if offset}

    def misfit(self, streams: Mapping[str, Stream], buckets: int) -> Misfit | None:
        """Why a job with these streams and buckets cannot resume; None if it can."""
        if self.buckets != buckets:
            what = f"it was made with buckets = {self.buckets}, and the setting is {buckets}"
            rebuild = f"`{REBUILD} --buckets {buckets}` writes a new one from the lake"
            return Misfit(what, f"Set buckets = {self.buckets}, or {rebuild}")
        for name, kept in self.streams.items():
            if name not in streams:
                what = f"it holds events of stream {name}, which is no longer declared"
                return Misfit(what, f"Declare {name}, or `{REBUILD}` writes a new one without it")
            if (found := kept.misfit(streams[name])) is not None:
                return found
        return None

    def to_json(self) -> bytes:
        """The content of the file."""
        return json.dumps(msgspec.to_builtins(self, str_keys=True), indent=1).encode()


def buckets_of(checkpoint: AnyPath, latency: Latency) -> int:
    """The number of buckets that a checkpoint has, or that a new one gets."""
    known = _of_any_release(own_folder(checkpoint, None) / METADATA).buckets
    return known if isinstance(known, int) and known > 0 else _BUCKETS[latency]


class _OfAnyRelease(msgspec.Struct):
    folder: str = ""
    buckets: Any = None


def _of_any_release(file: AnyPath) -> _OfAnyRelease:
    """What the metadata of any release name, also of one that this one cannot read."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=_OfAnyRelease)
    except (OSError, ValueError):
        return _OfAnyRelease()


def folder_in(file: AnyPath) -> str:
    """The folder that the metadata of any release name; else the empty name."""
    return _of_any_release(file).folder


def read(file: AnyPath) -> Metadata | Misfit:
    """The metadata in a file, or why this release cannot read them."""
    put_back = f"Put back what was there, or `{REBUILD}` writes a new one from the lake"
    foreign = Misfit(f"{METADATA} is not what nightjar wrote", put_back)
    try:
        found: dict[str, Any] = json.loads(file.read_bytes())
        written = found["format"]
    except (ValueError, KeyError, TypeError):
        return foreign
    if written not in _READ:
        what = f"its format is {written}, this release reads {_READ[0]} to {_READ[-1]}"
        return Misfit(what, f"`{REBUILD}` writes a new one from the lake; or run the release that wrote it")
    lacking = [key for key in ("name", "buckets", "streams", "routes") if key not in found]
    if lacking:
        return Misfit(f"{METADATA} lacks {', '.join(lacking)}", put_back)
    try:
        return msgspec.convert(found, Metadata, str_keys=True)
    except msgspec.ValidationError:
        return foreign


def _shown(value: str | list[str] | msgspec.UnsetType) -> str:
    if value is msgspec.UNSET:
        return "not declared"
    return json.dumps(value) if isinstance(value, list) else str(value)
