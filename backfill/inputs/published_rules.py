"""The rules of a run: the versions that the stream's job had when the run pinned its inputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from nightjar.backfill.config import BackfillError
from nightjar.backfill.inputs.histories import VersionHistory, histories
from nightjar.backfill.lateness import Lateness
from nightjar.contracts.rule_status import fold
from nightjar.rules.names import rule_meant
from nightjar.rules.publishing import Answer
from nightjar.rules.rulebook import Record, RuleBook, ShuffleKey
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import MIN_TIMESTAMP
from nightjar.rules.versions import NOT_YET, RuleSet, RuleVersion


@dataclass(frozen=True)
class PublishedRules:
    """every: all versions; asked_for: those of the rules that the run is about; published: by rule id and version, when
    the stream came to know each, and which history it had for it; reported: by stream, of answers their arrival and the
    `allowed_lateness` of then, µs."""

    every: RuleSet
    asked_for: RuleSet
    published: Mapping[tuple[str, int], VersionHistory]
    reported: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, streams: Mapping[str, Stream], wanted: Collection[str], answers: Iterable[tuple[int, int, str]]
    ) -> Self:
        """The rules after some answers. wanted: ids of those that the run is about, none for all; answers: see Notes.

        Raises:
            BackfillError: a rule that was asked for was never published.
        """
        records = [Record(offset, arrival, value.encode()) for offset, arrival, value in answers]
        book, made = _folded(streams, records)
        return cls(book.ruleset, _asked_for(wanted, book.ruleset), _published(streams, book, made), book.reported)


@dataclass(frozen=True)
class _KeyStart:
    """When the job began to serve a shuffle key. at: when a version began to wait for it; since: the event time from
    which on its state had all events when that took effect, its history included (both µs)."""

    at: int
    since: int


def _folded(
    streams: Mapping[str, Stream], answers: Iterable[Record]
) -> tuple[RuleBook, dict[ShuffleKey, list[_KeyStart]]]:
    """The answers as a book, and when the job has begun to serve each shuffle key: a key may be dropped, and is then
    served again without the state that it had (S5.8)."""
    book, made, missing = RuleBook(streams), defaultdict[ShuffleKey, list[_KeyStart]](list), dict[ShuffleKey, int]()
    for record in answers:
        change = fold(book, record)
        if change is None or change.answer not in (Answer.ACCEPTED, Answer.ACTIVE):
            continue
        version = book.of_rule(str(change.rule_id))[int(change.rule_version or 0) - 1]
        stream, key = version.rule.stream, book.serving[version.rule.stream, version.rule.group_by]
        if stream not in streams or key.field in streams[stream].entities:
            continue
        if change.answer is Answer.ACTIVE:
            if key in missing:
                # what was read before may be dated so far ahead
                empty = record.arrival + streams[stream].max_future_skew + 1
                since = empty if change.primed is None else change.primed.since
                made[key].append(_KeyStart(missing.pop(key), since))
        elif version.effective == NOT_YET and (key not in made or _is_unused(book, key, record.arrival)):
            missing.setdefault(key, record.arrival)
    return book, made


def _is_unused(book: RuleBook, key: ShuffleKey, now: int) -> bool:
    """Whether the job may have dropped a shuffle key, but for versions that wait for it. now: µs."""
    clock = now + book.streams[key.stream].allowed_lateness  # which may have been shorter then
    return all(
        version.effective == NOT_YET or book.has_ended(version, clock)
        for version in book.ruleset.of_stream(key.stream).versions
        if book.serving[key.stream, version.rule.group_by] == key
    )


def _asked_for(wanted: Collection[str], every: RuleSet) -> RuleSet:
    known = {version.rule.id for version in every.versions}
    if unknown := sorted(set(wanted) - known):
        raise BackfillError("was never published", where=f"rule {unknown[0]}", remedy=rule_meant(unknown[0], known))
    return RuleSet(tuple(v for v in every.versions if not wanted or v.rule.id in wanted))


def _published(
    streams: Mapping[str, Stream], book: RuleBook, made: Mapping[ShuffleKey, Sequence[_KeyStart]]
) -> dict[tuple[str, int], VersionHistory]:
    served: dict[ShuffleKey, list[RuleVersion]] = defaultdict(list)
    for version in book.ruleset.versions:
        if version.rule.stream in streams:
            served[book.serving[version.rule.stream, version.rule.group_by]].append(version)
    found: dict[tuple[str, int], VersionHistory] = {}
    for key, versions in served.items():
        lateness, arrivals = Lateness.of(streams[key.stream], book.reported), book.answered
        names = [(version.rule.id, version.version) for version in versions]
        primed = {name: book.primed[name].since for name in names if name in book.primed}
        primed_at = [arrivals[name] for name in primed]
        for name, known in histories(versions, arrivals, lateness, primed).items():
            since = _begin(made.get(key, ()), primed_at, known.arrival)
            found[name] = VersionHistory(known.arrival, max(known.history_since, since))
    return found


def _begin(made: Sequence[_KeyStart], primed_at: Iterable[int], arrival: int) -> int:
    """The event time (µs) before which the state of a shuffle key, as it was at that arrival, cannot have had events.

    Once a version has been primed, the state has the history from before the key as well.
    """
    last = next((each for each in reversed(made) if each.at <= arrival), None)
    if last is None or any(last.at <= at <= arrival for at in primed_at):
        return MIN_TIMESTAMP
    return last.since
