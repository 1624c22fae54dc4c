"""The rules of a run: the versions that the stream's job had when the run pinned its inputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from backfill.config import BackfillConfig, BackfillError, Request
from backfill.histories import Published, histories
from backfill.staging import Notes
from contracts.rule_status import fold
from rules.names import did_you_mean
from rules.publishing import Answer
from rules.rulebook import Record, Route, RuleBook
from rules.streams import Stream
from rules.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP
from rules.versions import RuleSet, RuleVersion


@dataclass(frozen=True)
class PublishedRules:
    """every: all versions; asked_for: those of the rules that the run is about; published: by rule id and version, when
    the stream came to know each, and which history it had for it."""

    every: RuleSet
    asked_for: RuleSet
    published: Mapping[tuple[str, int], Published]

    @classmethod
    def of(cls, config: BackfillConfig, request: Request, notes: Notes) -> Self:
        """The rules after the answers that the run has noted.

        Raises:
            BackfillError: a rule that was asked for was never published.
        """
        answers = [Record(offset, arrival, value.encode()) for offset, arrival, value in notes.answers]
        book, made = _folded(config.streams, answers)
        return cls(book.ruleset, _asked_for(request, book.ruleset), _published(config.streams, book, made))


def _folded(streams: Mapping[str, Stream], answers: Iterable[Record]) -> tuple[RuleBook, dict[Route, int]]:
    """The answers as a book, and of each route that the job has made when (µs) it could begin without history.

    Where its first version waited for history it has that since.
    """
    book, made = RuleBook(streams), dict[Route, int]()
    for record in answers:
        change = fold(book, record)
        if change is not None and change.answer is Answer.ACTIVE:
            rule = book.of_rule(str(change.rule_id))[int(change.rule_version or 0) - 1].rule
            route = book.serving[rule.stream, rule.group_by]
            if route.field not in streams[rule.stream].entities:
                made.setdefault(route, record.arrival if change.primed is None else change.primed.since)
    return book, made


def _asked_for(request: Request, every: RuleSet) -> RuleSet:
    known = {version.rule.id for version in every.versions}
    if unknown := sorted(set(request.rules) - known):
        remedy = did_you_mean(unknown[0], known, "Rules are")
        raise BackfillError("was never published", where=f"rule {unknown[0]}", remedy=remedy)
    return RuleSet(tuple(v for v in every.versions if not request.rules or v.rule.id in request.rules))


def _published(
    streams: Mapping[str, Stream], book: RuleBook, made: Mapping[Route, int]
) -> dict[tuple[str, int], Published]:
    served: dict[Route, list[RuleVersion]] = defaultdict(list)
    for version in book.ruleset.versions:
        if version.rule.stream in streams:
            served[book.serving[version.rule.stream, version.rule.group_by]].append(version)
    found: dict[tuple[str, int], Published] = {}
    for route, versions in served.items():
        lateness, arrivals = streams[route.stream].allowed_lateness, book.answered
        names = [(version.rule.id, version.version) for version in versions]
        primed = {name: book.primed[name].since for name in names if name in book.primed}
        # from then on the state has the history from before the route as well
        whole = min((arrivals[name] for name in primed), default=MAX_TIMESTAMP)
        for name, known in histories(versions, arrivals, lateness, primed).items():
            since = made.get(route, MIN_TIMESTAMP) if known.arrival < whole else MIN_TIMESTAMP
            found[name] = Published(known.arrival, max(known.history_since, since))
    return found
