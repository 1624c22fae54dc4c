"""Unions in tests whose streams have other names, topics or fields than the declared ones."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from nightjar.rules.streams import Stream, UnionMember
from nightjar.rules.unions import event_of_union


def with_members(streams: Mapping[str, Stream]) -> dict[str, Stream]:
    """The streams, where members of unions are as the streams of their names are."""
    return {
        name: replace(stream, members=tuple(replace(of, stream=streams[of.stream.name]) for of in stream.members))
        for name, stream in streams.items()
    }


def united(union: Stream, events: Mapping[str, pa.Table]) -> pa.Table:
    """The events of a union, given those of its members, one by one."""
    rows = [
        event_of_union(event, union, member)
        for member in union.members
        for event in events[member.stream.name].to_pylist()
    ]
    return pa.Table.from_pylist(rows, union.schema)


def member_of(union: Stream, event: Mapping[str, Any]) -> UnionMember:
    """The member whose event an event of the union is."""
    return next(member for member in union.members if member.alias == event["stream"])


def place_in_topic(stream: Stream, partition: int) -> tuple[str, int]:
    """The topic, and the number there, of a `partition` of the stream's events."""
    for member in reversed(stream.members):
        if partition >= member.first_partition:
            return member.stream.topic, partition - member.first_partition
    return stream.topic, partition


def topic_of(stream: Stream, event: Mapping[str, Any]) -> str:
    """The topic that an event of the stream is sent to."""
    return member_of(stream, event).stream.topic if stream.members else stream.topic


def event_of_member(union: Stream, event: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that an event of the union has in its own stream."""
    member = member_of(union, event)
    found = {field: event[name] for name, field in member.fields.items()}
    event_id = event[union.event_id].removeprefix(f"{member.alias}:")
    return {**found, member.stream.event_id: event_id, member.stream.event_time: event[union.event_time]}


def divided(stream: Stream, rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Stream, list[dict[str, Any]]]]:
    """The rows of a lake's table of events by the stream whose table that is: of a union those of its members."""
    if not stream.members:
        yield stream, [dict(row) for row in rows]
        return
    for member in stream.members:
        mine = [row for row in rows if row["stream"] == member.alias]
        beside = [{name: row[name] for name in row if name not in stream.fields} for row in mine]
        yield (
            member.stream,
            [
                {**of, **event_of_member(stream, row), "partition": row["partition"] - member.first_partition}
                for row, of in zip(mine, beside, strict=True)
            ],
        )
