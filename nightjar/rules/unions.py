"""Unions (S25): streams whose events are those of other streams, with fields by their own names or by others.

A union has no topic and no table: it is made of what its members' records are, wherever those are read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from nightjar.rules.names import did_you_mean, is_usable_name
from nightjar.rules.streams import ORDERING, STREAM_NAME, Declared, Stream, UnionMember
from nightjar.rules.types import INT64, STRING, TIMESTAMP, FieldType

# The fields that every union has.
STREAM, STREAM_NUMBER, EVENT_ID, EVENT_TIME = "stream", "stream_number", "event_id", "event_time"
OWN: Mapping[str, FieldType] = MappingProxyType(
    {STREAM: STRING, STREAM_NUMBER: INT64, EVENT_ID: STRING, EVENT_TIME: TIMESTAMP}
)
_KEYS = ("union", "entities", "tiebreaker", "allowed_lateness", "fields")


def union_of(name: str, body: Mapping[str, Any], streams: Mapping[str, Stream], origin: str) -> Stream:
    """The union that is declared under this name. streams: those that it can have as members.

    Raises:
        DeclarationError: with the key and the remedy.
    """
    return _Union(name, body, streams, origin).stream()


def members_event_id(member: UnionMember, event_id: str) -> str:
    """The id that an event of a member has in the union."""
    return f"{member.alias}:{event_id}"


def unions_with(stream: Stream, streams: Mapping[str, Stream]) -> Iterator[tuple[Stream, UnionMember]]:
    """The unions that a stream is a member of."""
    for union in streams.values():
        for member in union.members:
            if member.stream.name == stream.name:
                yield union, member


def source_of(member: UnionMember, name: str) -> str | None:
    """The column of a member's events that a column of the union is made of; None where it has none."""
    match name:
        case "stream" | "stream_number":
            return None
        case "event_id":
            return member.stream.event_id
        case "event_time":
            return member.stream.event_time
    return member.fields.get(name)


def as_union(events: pa.Table, union: Stream, member: UnionMember) -> pa.Table:
    """The events of a member as events of the union: its fields, then the columns beside the member's fields.

    A `partition` among these becomes one of the union's.
    """
    rows, columns = events.num_rows, {}
    for name, kind in union.fields.items():
        columns[name] = _column(events, name, kind, member, rows)
    for name in events.column_names:
        if name not in member.stream.fields:
            columns[name] = events.column(name)
    if "partition" in columns:
        columns["partition"] = pc.add(columns["partition"], pa.scalar(member.first_partition, pa.int32()))
    return pa.table(columns)


def united(events: Iterable[tuple[UnionMember, pa.Table]], union: Stream) -> pa.Table:
    """The events of some members as events of the union, with the columns that all of them have."""
    tables = [as_union(table, union, member) for member, table in events]
    common = [name for name in tables[0].column_names if all(name in table.column_names for table in tables)]
    return pa.concat_tables(table.select(common) for table in tables)


def event_of_union(event: Mapping[str, Any], union: Stream, member: UnionMember) -> dict[str, Any]:
    """The same for one event: the values of all fields of a member's event, as those of the union's."""
    made: dict[str, Any] = {
        STREAM: member.alias,
        STREAM_NUMBER: member.number,
        EVENT_ID: members_event_id(member, event[member.stream.event_id]),
    }
    for name in union.fields:
        if name not in made:
            source = source_of(member, name)
            made[name] = None if source is None else event[source]
    return made


def _column(events: pa.Table, name: str, kind: FieldType, member: UnionMember, rows: int) -> pa.ChunkedArray | pa.Array:
    match name:
        case "stream":
            return pa.repeat(member.alias, rows)
        case "stream_number":
            return pa.repeat(pa.scalar(member.number, pa.int64()), rows)
        case "event_id":
            prefix = members_event_id(member, "")
            return pc.binary_join_element_wise(prefix, events.column(member.stream.event_id), "")
    theirs = source_of(member, name)
    return pa.nulls(rows, kind.arrow) if theirs is None else events.column(theirs)


class _Union(Declared):
    """One union's."""

    def __init__(self, name: str, body: Mapping[str, Any], streams: Mapping[str, Stream], origin: str) -> None:
        super().__init__(name, body, origin, _KEYS, "union")
        self.streams = streams

    def stream(self) -> Stream:
        members = self.members()
        renamed = self.renamed(members)
        fields: dict[str, FieldType] = dict(OWN)
        first: dict[str, str] = {}  # the member that has a field first
        of_members = []
        for number, (alias, member) in enumerate(members.items()):
            theirs = self.fields_of(alias, member, renamed)
            for name, field in theirs.items():
                kind = member.fields[field]
                if name in first and fields[name] != kind:
                    example = f'{alias}_{name} = {{{alias} = "{field}"}}'
                    raise self.error(
                        f"fields.{name}",
                        f"is {fields[name]} in {first[name]} and {kind} in {alias}",
                        f"Give one of them another name, as in {example}",
                    )
                first.setdefault(name, alias)
                fields[name] = kind
            of_members.append(UnionMember(alias, member, number, MappingProxyType(theirs)))
        if other := _alike(fields):
            raise self.error(f"fields.{other}", "differs from another field in case only", "Give it another name")
        in_all = {
            name
            for name in first
            if all(name in of.fields and of.fields[name] not in of.stream.optional for of in of_members)
        }
        sensitive = {name for of in of_members for name, field in of.fields.items() if field in of.stream.sensitive}
        return Stream(
            self.name,
            "",
            EVENT_ID,
            EVENT_TIME,
            self.entities(fields),
            self.allowed_lateness(members.values()),
            max(member.max_future_skew for member in members.values()),
            MappingProxyType(fields),
            frozenset(fields.keys() - OWN.keys() - in_all),
            frozenset(sensitive),
            tiebreaker=self.tiebreaker(fields),
            members=tuple(of_members),
        )

    def members(self) -> dict[str, Stream]:
        """The streams, by their names in the union."""
        named = self.body["union"]
        if isinstance(named, list):
            if len(set(map(str, named))) < len(named):
                raise self.error("union", "names a stream twice", "Name each stream once")
            named = {str(name): name for name in named}
        if not isinstance(named, Mapping) or len(named) < 2:
            example = '["logins", "payments"], or names for them, {login = "logins", payment = "payments"}'
            raise self.error("union", f"{self.body['union']!r} is not a list of streams", f"Name two, as in {example}")
        for alias, name in named.items():
            if not STREAM_NAME.fullmatch(alias):
                raise self.error("union", f"{alias!r} is not a name", "Use lower-case letters, digits and _")
            if not isinstance(name, str) or name not in self.streams:
                remedy = did_you_mean(str(name), self.streams, "Streams with a topic are")
                raise self.error("union", f"{name!r} is not a declared stream with a topic", remedy)
        if len(set(named.values())) < len(named):
            raise self.error("union", "names a stream twice", "Name each stream once")
        return {alias: self.streams[name] for alias, name in named.items()}

    def renamed(self, members: Mapping[str, Stream]) -> dict[tuple[str, str], str]:
        """The names in the union of members' fields that are declared to have others: by member and field."""
        declared = self.body.get("fields", {})
        if not isinstance(declared, Mapping):
            raise self.error("fields", "is not a table", 'Write customer_id = {logins = "user_id"}')
        found: dict[tuple[str, str], str] = {}
        for name, of in declared.items():
            place = f"fields.{name}"
            if not is_usable_name(name) or name in OWN:
                what = "is a field that every union has" if name in OWN else "cannot be the name of a field"
                raise self.error(place, what, "Use another name, of letters, digits and _, as in customer_id")
            if not isinstance(of, Mapping) or not of:
                example = f'{name} = {{{next(iter(members))} = "FIELD"}}'
                raise self.error(place, f"{of!r} does not say whose field it is", f"Write {example}")
            for alias, field in of.items():
                if alias not in members:
                    raise self.error(
                        f"{place}.{alias}", "is not in the union", did_you_mean(alias, members, "In it are")
                    )
                if not isinstance(field, str) or field not in members[alias].fields:
                    remedy = did_you_mean(str(field), members[alias].fields, "Fields are")
                    raise self.error(f"{place}.{alias}", f"{field!r} is not a field of {alias}", remedy)
                if (other := found.get((alias, field))) is not None:
                    raise self.error(f"{place}.{alias}", f"{field} is {other} already", "Name it once")
                found[alias, field] = name
        return found

    def fields_of(self, alias: str, member: Stream, renamed: Mapping[tuple[str, str], str]) -> dict[str, str]:
        """The member's fields by their names in the union, without those that every union has."""
        found: dict[str, str] = {}
        for field in member.fields:
            name = renamed.get((alias, field), field)
            if (alias, field) not in renamed and (
                field == member.event_time or name == field == member.event_id == EVENT_ID
            ):
                continue  # as the union's own
            if name in OWN:
                raise self.error(
                    f"union: {alias}.{field}",
                    "has the name of a field that every union has",
                    f'Give it another one: {alias}_{field} = {{{alias} = "{field}"}}',
                )
            if name in found:
                raise self.error(
                    f"fields.{name}",
                    f"would be both {found[name]} and {field} of {alias}",
                    f'Give the other one another name, too: {alias}_{name} = {{{alias} = "{name}"}}',
                )
            found[name] = field
        return found

    def entities(self, fields: Mapping[str, FieldType]) -> tuple[str, ...]:
        names = self.body.get("entities")
        if not isinstance(names, list) or not names:
            example = 'Name at least one field that the streams have in common, as in ["customer_id"]'
            raise self.error("entities", f"{names!r} is not a list of fields", example)
        for name in names:
            if not isinstance(name, str) or name not in fields:
                remedy = did_you_mean(str(name), fields, "Fields are")
                raise self.error("entities", f"{name!r} is not a field of the union", remedy)
        if len(set(names)) < len(names):
            raise self.error("entities", "names a field twice", "Name each field once")
        return tuple(names)

    def tiebreaker(self, fields: Mapping[str, FieldType]) -> str:
        name = self.body.get("tiebreaker", STREAM_NUMBER)
        if not isinstance(name, str) or name not in fields or fields[name].kind not in ORDERING or name == EVENT_TIME:
            orders = [field for field, kind in fields.items() if kind.kind in ORDERING and field != EVENT_TIME]
            what = f"{name!r} is not an int64, decimal or timestamp of the union"
            raise self.error("tiebreaker", what, did_you_mean(str(name), orders, "These are"))
        return name

    def allowed_lateness(self, members: Collection[Stream]) -> int:
        if "allowed_lateness" not in self.body:
            return max(member.allowed_lateness for member in members)
        return self.duration("allowed_lateness", "")


def _alike(names: Iterable[str]) -> str | None:
    """A name that differs from another one in case only."""
    known: set[str] = set()
    for name in names:
        if name.lower() in known:
            return name
        known.add(name.lower())
    return None
