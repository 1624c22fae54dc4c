"""What is left of a person outside the lake (S15): in which topics, and in the job's state, and until when.

Pure functions of what the lake has and Kafka says: the program asks Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from nightjar.backfill.config import BackfillConfig
from nightjar.backfill.erasure.forgetting import Removal
from nightjar.lake import delta
from nightjar.lake.archive import archived_offsets, archived_until
from nightjar.lake.stream_state import rule_book
from nightjar.lake.tables import RULE_STATUS
from nightjar.rules.retention import waits_for, widest
from nightjar.rules.streams import Stream, recorded_streams
from nightjar.rules.timestamps import after, from_microseconds, microseconds


@dataclass(frozen=True)
class TopicState:
    """What Kafka says of a topic. retained_ms: how long after its arrival a record may be there, None: for good; ends:
    partition to the offset after its last record."""

    retained_ms: int | None
    ends: Mapping[int, int]


@dataclass(frozen=True)
class InTopic:
    """What a topic may still have of the person. until: when Kafka has deleted what had arrived by now (None: it never
    deletes). unarchived: records that the lake does not have yet: the next archive brings them."""

    topic: str
    until: datetime | None
    unarchived: int


@dataclass(frozen=True)
class Remains:
    """What is left outside the lake. topics: None if Kafka did not answer, with the reason in `unknown`. state_until:
    by stream, when the job's state has no event of the person any more, as long as it runs."""

    topics: tuple[InTopic, ...] | None
    unknown: str
    state_until: Mapping[str, datetime]


def state_until(config: BackfillConfig, streams: Sequence[Stream], removal: Removal) -> dict[str, datetime]:
    """By stream, when the job's state has none of the erased events any more."""
    root, found = config.lake.root, {}
    versions = rule_book(root, config.streams).ruleset.versions if delta.exists(root, RULE_STATUS) else ()
    for stream in streams:
        if (last := removal.last_events.get(stream.name)) is not None:
            mine = (v for v in versions if v.rule.stream == stream.name)
            kept = max((widest(version) + waits_for(version.rule) for version in mine), default=0)
            kept += stream.allowed_lateness
            found[stream.name] = from_microseconds(after(microseconds(last), kept))
    return found


def last_arrivals(config: BackfillConfig, streams: Sequence[Stream], removal: Removal) -> dict[str, datetime]:
    """By topic of the streams, and of what follows from events, when the last record about the person arrived."""
    names, until = config.lake.topics, archived_until(config.lake.root)
    latest = datetime.now(UTC) if until is None else from_microseconds(until)
    arrivals = {stream.topic: removal.last_arrivals.get(stream.name, latest) for stream in recorded_streams(streams)}
    return arrivals | dict.fromkeys(
        (names.alerts, names.restrictions, names.late_events, names.quarantine, names.labels, names.snoozes), latest
    )


def in_topics(
    config: BackfillConfig, arrivals: Mapping[str, datetime], topics: Mapping[str, TopicState]
) -> tuple[InTopic, ...]:
    """What the topics that exist may still have. arrivals: see `last_arrivals`."""
    archived = archived_offsets(config.lake.root)
    return tuple(
        InTopic(
            topic,
            _deleted_at(arrivals[topic], state.retained_ms),
            sum(end - archived.get(topic, {}).get(partition, 0) for partition, end in state.ends.items()),
        )
        for topic, state in topics.items()
    )


def _deleted_at(arrived: datetime, retained_ms: int | None) -> datetime | None:
    try:
        return None if retained_ms is None else arrived + timedelta(milliseconds=retained_ms)
    except OverflowError:
        return None
