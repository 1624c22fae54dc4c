"""Stream declarations: what kinds of events there are, with which typed fields, read from one TOML file."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import pyarrow as pa

from nightjar.rules.durations import parse_duration
from nightjar.rules.encodings import ENCODING_KEYS, PLAIN, Encoding, Envelope, encoding
from nightjar.rules.envelopes import wrapped
from nightjar.rules.errors import DeclarationError, NightjarError, SettingsError, shortened
from nightjar.rules.field_paths import ABSENT, CHANGE, HEADERS, KEY, FieldPath, nested
from nightjar.rules.lateness import DEFAULT_ALLOWED_LATENESS, SHIPPED
from nightjar.rules.names import did_you_mean, is_usable_name
from nightjar.rules.tables import looked_up, memberships, tables_from_mapping
from nightjar.rules.types import STRING, FieldType, Kind
from nightjar.rules.written_times import WrittenTime, written_time

DEFAULT_MAX_FUTURE_SKEW = "1m"

# Columns beside an event's own fields, in every batch or in the lake.
RESERVED_FIELDS = frozenset(
    {"arrival_time", "partition", "offset", "arrival_date", "sent_at", "rejected", "detail", "original"}
)

STREAM_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}", re.ASCII)
TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
_KEYS = (
    *("topic", "event_id", "event_time", "tiebreaker", "entities", "allowed_lateness", "max_future_skew"),
    *(*ENCODING_KEYS, "fields"),
)
_MARKS = ("optional", "sensitive")
_TIME_KEYS = ("unit", "format", "zone")
_FIELD_KEYS = ("type", *_MARKS, "from", *_TIME_KEYS, "sql")
_DERIVED_KEYS = ("sql", "sensitive")
# The kinds of a tie-breaker: exact, and in the order that they are written in.
ORDERING = frozenset({Kind.INT64, Kind.DECIMAL, Kind.TIMESTAMP})


T = TypeVar("T")


def _nothing() -> Mapping[str, Any]:
    return MappingProxyType({})


# A union's partitions: those of its first member, then from here on those of the next, and so on.
_PARTITIONS_A_MEMBER = 1 << 20


@dataclass(frozen=True)
class UnionMember:
    """A stream of a union. alias: its name there; number: its place there, from 0; fields: its fields, by their names
    in the union, except what every union has of each of its streams (rules/unions.py)."""

    alias: str
    stream: Stream
    number: int
    fields: Mapping[str, str]

    @property
    def first_partition(self) -> int:
        """The number that the first partition of its topic has in the union."""
        return self.number * _PARTITIONS_A_MEMBER

    def __reduce__(self) -> tuple[Any, ...]:
        # as of Stream
        return _member, (self.alias, self.stream, self.number, dict(self.fields))


def _member(alias: str, stream: Stream, number: int, fields: dict[str, str]) -> UnionMember:
    return UnionMember(alias, stream, number, MappingProxyType(fields))


@dataclass(frozen=True)
class Stream:
    """A declared kind of event; `allowed_lateness` and `max_future_skew` are in microseconds, `fields` are ordered."""

    name: str
    topic: str
    event_id: str
    event_time: str
    entities: tuple[str, ...]
    allowed_lateness: int
    max_future_skew: int
    fields: Mapping[str, FieldType]
    optional: frozenset[str] = frozenset()
    """The fields that an event's JSON may lack; their value is then NULL."""
    sensitive: frozenset[str] = frozenset()
    """Those whose values are not shown to people (nightjar/rules/masking.py)."""
    paths: Mapping[str, FieldPath] = field(default_factory=_nothing)
    """Where the value of a field stands in a record, if not at the key of its name."""
    times: Mapping[str, WrittenTime] = field(default_factory=_nothing)
    """How the times of a field are written, if that is declared."""
    derived: Mapping[str, str] = field(default_factory=_nothing)
    """The fields that are computed from the others, and how (rules/derived.py)."""
    encoding: Encoding = PLAIN
    """How records are written."""
    tiebreaker: str | None = None
    """The field by which events of one time are ordered (S1.3)."""
    tables: Mapping[str, FieldType] = field(default_factory=_nothing)
    """The tables that its rules can ask, with the type of each one's key (rules/tables.py)."""
    lookup: Mapping[str, str] = field(default_factory=_nothing)
    """To one of its rules: the tables whose values that looks up, each with the field that is the key."""
    members: tuple[UnionMember, ...] = ()
    """Of a union: the streams whose events it has (rules/unions.py). It has no topic then."""

    @property
    def sources(self) -> tuple[Stream, ...]:
        """The streams whose records are its events: itself, or the members of a union."""
        return tuple(member.stream for member in self.members) or (self,)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of its records."""
        return tuple(stream.topic for stream in self.sources)

    def by_partition(self, of_topics: Mapping[str, Mapping[int, T]]) -> dict[int, T]:
        """What is known of partitions, by topic and their number there, by the number that events of the stream have as
        their `partition`."""
        if not self.members:
            return dict(of_topics.get(self.topic, {}))
        return {
            member.first_partition + number: value
            for member in self.members
            for number, value in of_topics.get(member.stream.topic, {}).items()
        }

    def of_member(self, member: UnionMember, by_partition: Mapping[int, T]) -> dict[int, T]:
        """The reverse of `by_partition` for one member: what is known of its topic's partitions, by their number."""
        last = member.first_partition + _PARTITIONS_A_MEMBER
        return {
            number - member.first_partition: value
            for number, value in by_partition.items()
            if member.first_partition <= number < last
        }

    @property
    def reads_key(self) -> bool:
        """Whether a field is the key of a record."""
        return any(path.steps[0] == KEY for path in self.paths.values())

    @property
    def reads_headers(self) -> bool:
        """Whether the headers of a record are read, beside `sent_at`."""
        is_event = self.encoding.envelope is Envelope.CLOUDEVENTS
        return is_event or any(path.steps[0] == HEADERS for path in self.paths.values())

    @property
    def header_names(self) -> frozenset[str]:
        """The headers that are fields."""
        return frozenset(str(path.steps[1]) for path in self.paths.values() if path.steps[0] == HEADERS)

    @property
    def columns(self) -> Mapping[str, FieldType]:
        """What a condition on an event can read: its fields, whether their values are in tables, and what is looked up
        there."""
        if not self.tables:
            return self.fields
        found = looked_up(self.lookup, self.fields, self.tables)
        return {**self.fields, **memberships(self.fields, self.tables), **found}

    def looking_up(self, lookup: Mapping[str, str]) -> Stream:
        """The stream as a rule with this lookup sees it."""
        return replace(self, lookup=MappingProxyType(dict(lookup))) if lookup else self

    @property
    def recorded(self) -> Mapping[str, FieldType]:
        """The fields that records have."""
        if not self.derived:
            return self.fields
        return {name: kind for name, kind in self.fields.items() if name not in self.derived}

    def path(self, name: str) -> FieldPath:
        """Where the value of a field stands in a record."""
        return self.paths.get(name) or FieldPath((name,))

    def value_in(self, record: Mapping[str, Any], name: str) -> Any:
        """The value of a field in a record, as FieldPath.value has it."""
        path = self.paths.get(name)
        return record.get(name, ABSENT) if path is None else path.value(record)

    def as_json(self) -> Stream:
        """The stream, with records in JSON whose fields are all at their names, without an envelope."""
        if self.encoding == PLAIN and not (self.reads_key or self.reads_headers):
            return self
        return replace(self, encoding=PLAIN, paths=MappingProxyType({}))

    def is_text(self, name: str, value: Any) -> bool:
        """Whether a value is a text that may be a number: of a record's key, or of a header."""
        is_cell = name in self.paths and self.paths[name].is_beside and self.fields[name].kind is not Kind.STRING
        return is_cell and isinstance(value, str)

    def with_units(self, units: Mapping[str, str]) -> Stream:
        """The stream, with times of these fields that are numbers of these units, whatever is declared."""
        times = {
            name: replace(self.times.get(name, WrittenTime()), unit=unit, format=None) for name, unit in units.items()
        }
        return replace(self, times=MappingProxyType({**self.times, **times})) if units else self

    def shown_place(self, name: str) -> str:
        """The field, and where it is read from, for a person."""
        return f"{name} ({self.paths[name]})" if name in self.paths else name

    def record(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The record that has these values of fields at their places."""
        record = nested((self.path(name), value) for name, value in values.items() if name not in self.derived)
        return wrapped(record, self.encoding)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of a batch of these events: the fields in declaration order, all nullable."""
        return pa.schema([pa.field(name, kind.arrow) for name, kind in self.fields.items()])

    def completed(self, events: pa.Table) -> pa.Table:
        """The table with every declared field, in the declared order and before its other columns.

        A missing field is NULL: the table was written before the field was declared.
        """
        names = events.column_names
        if names[: len(self.fields)] == list(self.fields):
            return events
        others = [name for name in names if name not in self.fields]
        for name in self.fields.keys() - set(names):
            events = events.append_column(name, pa.nulls(events.num_rows, self.fields[name].arrow))
        return events.select([*self.fields, *others])

    def __reduce__(self) -> tuple[Any, ...]:
        # A read-only mapping cannot be pickled, and streams are sent to worker processes.
        return _rebuilt, ({**vars(self), **{name: dict(getattr(self, name)) for name in _MAPPINGS}},)


_MAPPINGS = ("fields", "paths", "times", "derived", "tables", "lookup")


def _rebuilt(parts: dict[str, Any]) -> Stream:
    return Stream(**{**parts, **{name: MappingProxyType(parts[name]) for name in _MAPPINGS}})


def optional_field(name: str, kind: FieldType) -> str:
    """An optional field's declaration as written in the file."""
    return f'{name} = {{type = "{kind}", optional = true}}'


def load_streams(path: str | Path | None = None) -> dict[str, Stream]:
    """The streams declared in the TOML file at `path` (None: the shipped ones), by name.

    Raises:
        DeclarationError: with the file, the key and the remedy.
    """
    path = SHIPPED if path is None else Path(path)
    try:
        mapping = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as failure:
        raise DeclarationError(
            f"cannot be read ({failure.strerror or failure})", where=str(path), remedy="Give the path of a TOML file"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as failure:
        raise DeclarationError(
            f"is not TOML: {failure}", where=str(path), remedy=f"{SHIPPED.name}, shipped with nightjar, is an example"
        ) from None
    unknown = set(mapping) - {"streams", "tables"}
    if unknown or not isinstance(mapping.get("streams"), dict):
        key = min(unknown) if unknown else "streams"
        what = "is not a key of this file" if unknown else "there is no table of streams"
        raise DeclarationError(what, where=f"{path}: {key}", remedy="A stream is a table [streams.NAME]")
    return streams_from_mapping(mapping["streams"], str(path), path.parent, mapping.get("tables"))


def stream_named(name: str, streams: Mapping[str, Stream]) -> Stream:
    """One of the declared streams.

    Raises:
        SettingsError: there is none of this name.
    """
    if name not in streams:
        remedy = did_you_mean(str(name), streams, "Streams are")
        raise SettingsError("is not a declared stream", where=shortened(str(name)), remedy=remedy)
    return streams[name]


def recorded_stream(name: str, streams: Mapping[str, Stream]) -> Stream:
    """One of the declared streams that have a topic.

    Raises:
        SettingsError: there is none of this name, or it is a union.
    """
    found = stream_named(name, streams)
    if found.members:
        remedy = f"Name one of its streams: {', '.join(source.name for source in found.sources)}"
        raise SettingsError("is a union, which has no topic", where=name, remedy=remedy)
    return found


def streams_from_mapping(
    mapping: Mapping[str, Any], origin: str, folder: Path | None = None, tables: Any = None
) -> dict[str, Stream]:
    """The streams of a mapping name → declaration with the TOML file's keys; `origin` names its source in errors.

    folder: that schema files are relative to; None: the working directory. tables: those of tables.
    """
    if not isinstance(mapping, Mapping) or not mapping:
        raise DeclarationError(
            "no stream is declared", where=f"{origin}: streams", remedy="A stream is a table [streams.NAME]"
        )
    united = {name for name, body in mapping.items() if isinstance(body, Mapping) and "union" in body}
    streams = {
        str(name): _Declaration(str(name), body, origin, folder).stream()
        for name, body in mapping.items()
        if name not in united
    }
    topics: dict[str, str] = {}
    for stream in streams.values():
        if (other := topics.setdefault(stream.topic, stream.name)) != stream.name:
            raise DeclarationError(
                f"topic {stream.topic!r} already belongs to stream {other}",
                where=f"{origin}: streams.{stream.name}.topic",
                remedy="Give each stream a topic of its own",
            )
    if united:
        from nightjar.rules.unions import union_of

        unions = {name: union_of(str(name), mapping[name], streams, origin) for name in united}
        streams = {name: unions[name] if name in united else streams[name] for name in map(str, mapping)}
    return streams if tables is None else with_tables(streams, tables, origin)


def recorded_streams(streams: Iterable[Stream]) -> list[Stream]:
    """Those with a topic and a table of their own: all but unions."""
    return [stream for stream in streams if not stream.members]


def with_tables(streams: Mapping[str, Stream], tables: Any, origin: str) -> dict[str, Stream]:
    """The streams, whose rules can ask the tables of a mapping name → declaration."""
    declared = MappingProxyType(tables_from_mapping(tables, origin))
    return {name: replace(stream, tables=declared) for name, stream in streams.items()}


def tables_of(streams: Mapping[str, Stream]) -> Mapping[str, FieldType]:
    """The declared tables, which all streams have."""
    return next((stream.tables for stream in streams.values()), _nothing())


class Declared:
    """The table of a stream or a union, which is checked key by key. keys: those that `what` it is may have."""

    def __init__(self, name: str, body: Any, origin: str, keys: Sequence[str], what: str) -> None:
        self.name, self.origin = name, origin
        if not STREAM_NAME.fullmatch(name):
            raise self.error("", f"{name!r} is not a stream name", "Use lower-case letters, digits and _, as in logins")
        if not isinstance(body, Mapping):
            raise self.error("", f"{body!r} is not a table", f"A stream is a table [streams.{name}]")
        self.body = body
        for key in body:
            if key not in keys:
                raise self.error(str(key), f"is not a key of a {what}", did_you_mean(str(key), keys, "Keys are"))

    def duration(self, key: str, default: str) -> int:
        """The length of time at the key, µs."""
        try:
            return parse_duration(self.body.get(key, default))
        except NightjarError as refusal:
            raise self.error(key, refusal.what, refusal.remedy) from None

    def error(self, key: str, what: str, remedy: str) -> DeclarationError:
        """What is wrong at the key."""
        place = f"streams.{self.name}.{key}" if key else f"streams.{self.name}"
        return DeclarationError(what, where=f"{self.origin}: {place}", remedy=remedy)


class _Declaration(Declared):
    """One stream's."""

    def __init__(self, name: str, body: Any, origin: str, folder: Path | None) -> None:
        super().__init__(name, body, origin, _KEYS, "stream")
        self.folder = folder

    def stream(self) -> Stream:
        fields, marked = self.fields()
        written_as = self.encoding()
        derived = self.derived(fields, marked)
        optional, sensitive = (frozenset(marked[mark]) for mark in _MARKS)
        paths = self.paths((name for name in fields if name not in derived), written_as)
        times = {name: self.written(name, kind) for name, kind in fields.items()}
        event_id, event_time = self.field_key("event_id", fields), self.field_key("event_time", fields)
        if fields[event_id].kind is not Kind.STRING:
            raise self.error(
                "event_id",
                f"field {event_id!r} is {fields[event_id]}",
                f'An event id is a string (which takes numbers too): declare {event_id} = "string"',
            )
        if fields[event_time].kind is not Kind.TIMESTAMP:
            raise self.error(
                "event_time", f"field {event_time!r} is {fields[event_time]}", f'Declare {event_time} = "timestamp"'
            )
        for key, name in (("event_id", event_id), ("event_time", event_time)):
            if name in optional:
                raise self.error(
                    f"fields.{name}", f"is the {key}, which every event has", f'Declare {name} = "{fields[name]}"'
                )
            if name in sensitive:
                raise self.error(
                    f"fields.{name}",
                    f"is the {key}, by which people and logs name an event",
                    f"Let only other fields be sensitive; an {key} should say nothing about a person",
                )
        topic = self.body.get("topic", self.name)
        if not isinstance(topic, str) or not TOPIC_NAME.fullmatch(topic) or topic in (".", ".."):
            raise self.error("topic", f"{topic!r} is not a Kafka topic name", "Use letters, digits, '.', '_' and '-'")
        return Stream(
            self.name,
            topic,
            event_id,
            event_time,
            self.entities(fields),
            self.duration("allowed_lateness", DEFAULT_ALLOWED_LATENESS),
            self.duration("max_future_skew", DEFAULT_MAX_FUTURE_SKEW),
            MappingProxyType(fields),
            optional,
            sensitive,
            MappingProxyType(paths),
            MappingProxyType({name: written for name, written in times.items() if written is not None}),
            MappingProxyType(derived),
            written_as,
            self.tiebreaker(fields),
        )

    def fields(self) -> tuple[dict[str, FieldType], dict[str, set[str]]]:
        """The declared fields, and which of them have each of _MARKS."""
        declared = self.body.get("fields")
        if not isinstance(declared, Mapping) or not declared:
            raise self.error(
                "fields",
                "no field is declared",
                f'Declare them under [streams.{self.name}.fields], as in ip = "string"',
            )
        fields: dict[str, FieldType] = {}
        folded: dict[str, str] = {}
        marked = {mark: set[str]() for mark in _MARKS}
        for name in declared:
            place = f"fields.{name}"
            if not is_usable_name(name):
                remedy = "Use letters, digits and _, as in customer_id, and no word of SQL such as AND or CASE"
                if name and '"' not in name:
                    example = json.dumps(str(FieldPath((name,))))
                    remedy += f'. If records have this name: {{type = "string", from = {example}}}'
                raise self.error(place, f"{name!r} cannot be the name of a field", remedy)
            if name.lower() in RESERVED_FIELDS:
                raise self.error(place, "is reserved for nightjar's own columns", "Rename the field")
            if other := folded.get(name.lower()):
                raise self.error(place, f"differs from {other!r} in case only", "Give one of the two another name")
            folded[name.lower()] = name
            written = self.keys_of(name)
            for mark in _MARKS:
                if not isinstance(value := written.get(mark, False), bool):
                    raise self.error(f"{place}.{mark}", f"{value!r} is not true or false", "Write true or false")
                marked[mark] |= {name} if value else set()
            if "sql" in written:
                fields[name] = STRING  # until the types of all others are known: see `derived`
                continue
            try:
                fields[name] = FieldType.parse(written.get("type", ""))
            except DeclarationError as refusal:
                raise self.error(place, refusal.what, refusal.remedy) from None
        return fields, marked

    def keys_of(self, name: str) -> Mapping[str, Any]:
        """A field's keys: "string" is short for {type = "string"}."""
        written = self.body["fields"][name]
        if not isinstance(written, Mapping):
            return {"type": written}
        for key in written:
            if key not in _FIELD_KEYS:
                remedy = did_you_mean(str(key), _FIELD_KEYS, "Keys are")
                raise self.error(f"fields.{name}.{key}", "is not a key of a field", remedy)
        return written

    def derived(self, fields: dict[str, FieldType], marked: Mapping[str, set[str]]) -> dict[str, str]:
        """The expressions of the derived fields, whose types replace what `fields` has for them.

        They are optional, since events from before have none, and sensitive if they read a field that is."""
        found = {name: self.keys_of(name)["sql"] for name in fields if "sql" in self.keys_of(name)}
        if not found:
            return {}
        from nightjar.rules.derived import derived_field  # where no field is derived, no expression is read

        recorded = {name: kind for name, kind in fields.items() if name not in found}
        for name, sql in found.items():
            place = f"fields.{name}.sql"
            if key := next((key for key in self.keys_of(name) if key not in _DERIVED_KEYS), None):
                raise self.error(f"fields.{name}.{key}", "is not a key of a derived field", "Leave it out")
            if not isinstance(sql, str):
                raise self.error(place, f"{sql!r} is not a text", 'Write an expression, as in sql = "LOWER(email)"')
            try:
                fields[name], read = derived_field(sql, recorded)
            except NightjarError as refusal:
                remedy = refusal.remedy
                if any(other in sql for other in found):
                    remedy = f"{remedy}. A derived field is computed from fields that records have".lstrip(". ")
                raise self.error(place, str(refusal.what), remedy) from None
            marked["optional"].add(name)
            marked["sensitive"] |= {name} if read & marked["sensitive"] else set()
        return found

    def encoding(self) -> Encoding:
        """How the records are written."""
        try:
            return encoding({key: self.body[key] for key in ENCODING_KEYS if key in self.body}, self.folder)
        except DeclarationError as refusal:
            raise self.error(refusal.where, refusal.what, refusal.remedy) from None

    def paths(self, fields: Iterable[str], written_as: Encoding) -> dict[str, FieldPath]:
        """The fields that have a path, with it."""
        paths: dict[str, FieldPath] = {}
        for name in fields:
            written = self.keys_of(name)
            try:
                path = FieldPath.parse(written["from"]) if "from" in written else FieldPath((name,))
            except DeclarationError as refusal:
                raise self.error(f"fields.{name}.from", refusal.what, refusal.remedy) from None
            place = f"fields.{name}.from" if "from" in written else f"fields.{name}"
            if path.steps[0] == CHANGE and written_as.envelope is not Envelope.DEBEZIUM:
                raise self.error(
                    place, f"{CHANGE} is of Debezium's envelope", 'Add envelope = "debezium" to the stream'
                )
            if other := next((other for other, theirs in paths.items() if path == theirs), None):
                raise self.error(place, f"{other} is read from {path} already", f'Derive it: {{sql = "{other}"}}')
            if other := next((other for other, theirs in paths.items() if path.conflicts_with(theirs)), None):
                raise self.error(
                    place,
                    f"{path} and {paths[other]}, of {other}, cannot both be in a record",
                    "One is within the other, or what is an object for one is a list for the other",
                )
            paths[name] = path
        return {name: path for name, path in paths.items() if path != FieldPath((name,))}

    def written(self, name: str, kind: FieldType) -> WrittenTime | None:
        """How the field's times are written, if that is declared."""
        declared = {key: value for key, value in self.keys_of(name).items() if key in _TIME_KEYS}
        if not declared:
            return None
        if kind.kind is not Kind.TIMESTAMP:
            key = next(iter(declared))
            raise self.error(f"fields.{name}.{key}", f"is for times, and {name} is {kind}", "Leave it out")
        try:
            return written_time(declared)
        except NightjarError as refusal:
            raise self.error(f"fields.{name}.{refusal.where}", refusal.what, refusal.remedy) from None

    def tiebreaker(self, fields: Mapping[str, FieldType]) -> str | None:
        """The field that orders events of one time; None if none is declared."""
        if "tiebreaker" not in self.body:
            return None
        name = self.declared("tiebreaker", self.body["tiebreaker"], fields)
        if fields[name].kind not in ORDERING or name == self.body.get("event_time"):
            what = "is the event time" if name == self.body.get("event_time") else f"is {fields[name]}"
            remedy = "Name an int64, decimal or timestamp that grows from event to event, as a position in a log does"
            raise self.error("tiebreaker", f"field {name!r} {what}", remedy)
        return name

    def field_key(self, key: str, fields: Mapping[str, FieldType]) -> str:
        name = self.body.get(key)
        if name is None:
            raise self.error(key, "is missing", "Name the field that holds it")
        return self.declared(key, name, fields)

    def declared(self, key: str, name: Any, fields: Mapping[str, FieldType]) -> str:
        if not isinstance(name, str) or name not in fields:
            raise self.error(key, f"{name!r} is not a declared field", did_you_mean(str(name), fields, "Fields are"))
        return name

    def entities(self, fields: Mapping[str, FieldType]) -> tuple[str, ...]:
        names = self.body.get("entities")
        if not isinstance(names, list | tuple) or not names:
            raise self.error(
                "entities", f"{names!r} is not a list of fields", 'Name at least one field, as in ["customer_id"]'
            )
        entities = tuple(self.declared("entities", name, fields) for name in names)
        if len(set(entities)) < len(entities):
            raise self.error("entities", "names a field twice", "Name each field once")
        return entities
