"""When the stream came to know each version of each rule, and how far back its state reached then.

How it works: state begins at the horizon, which is the widest window of the rules before what is settled, and moves
back only where history is taken in for a version, whose answer says how far (see docs/semantics.md). So which history a
version found follows from when versions were published and replaced, and from nothing else that the job would have to
remember.

How late events may be is a setting, which a restart may change; answers report it. Between two answers that report
different ones the lesser is taken, as the stream may have retained so little.

Known limitation: the horizon is computed as if the stream's clock had come to each moment that matters. Where it was
behind, the stream knew more history than this says, never less. Nor does it say that a version took over the steps
(S14) that had been kept for an earlier one.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nightjar.backfill.lateness import Lateness
from nightjar.rules.model import State
from nightjar.rules.retention import folds, kept_for, waits_for
from nightjar.rules.versions import RuleVersion

_LONG_AGO = -(1 << 62)


@dataclass(frozen=True)
class VersionHistory:
    """When (µs) the stream came to know a rule's version, and the event time from which on it knew all events then."""

    arrival: int
    history_since: int


def histories(
    versions: Sequence[RuleVersion],
    arrivals: Mapping[tuple[str, int], int],
    lateness: Lateness,
    primed: Mapping[tuple[str, int], int] | None = None,
) -> dict[tuple[str, int], VersionHistory]:
    """What the state that serves each version held when that version arrived.

    versions: of the rules that share this state (one stream's, one shuffle key's), in the order of publication.
    arrivals: by rule id and version, µs. lateness: the stream's. primed: by rule id and version the event time (µs)
    from which on the state had all events when the version took effect, of those that waited for history.
    """
    back: dict[int, int] = {}
    for name, since in (primed or {}).items():
        back[arrivals[name]] = min(since, back.get(arrivals[name], since))
    begun = [(arrivals[v.rule.id, v.version], v) for v in versions]
    live = _live(begun, lateness.least)
    instants = sorted({*(arrival for arrival, _ in begun), *(end for *_, end in live if end is not None)})
    windows = sorted(live, key=lambda window: window[1])
    # minus how far back events are kept for a version, and when nothing needs it any more
    running: list[tuple[int, float]] = []
    horizon: dict[int, int] = {}
    reached, begins = _LONG_AGO, 0
    for instant in instants:
        while running and running[0][1] < instant:
            heapq.heappop(running)
        reach = -running[0][0] if running else 0
        reached = max(reached, instant - lateness.about(instant) - reach)
        reached = horizon[instant] = min(reached, back.get(instant, reached))
        while begins < len(windows) and windows[begins][1] <= instant:
            over, _, end = windows[begins]
            heapq.heappush(running, (-over, float("inf") if end is None else end))
            begins += 1
    return {(v.rule.id, v.version): VersionHistory(arrival, horizon[arrival]) for arrival, v in begun}


def _live(versions: Sequence[tuple[int, RuleVersion]], allowed_lateness: int) -> list[tuple[int, int, int | None]]:
    """Of each version that keeps state: how far before what is settled events are kept for it, when it arrived, and
    when the last event that can see it was settled (None: never), all µs."""
    found: list[tuple[int, int, int | None]] = []
    settled: dict[str, int] = {}
    # by rule: arrival and effective time of later versions, those alone that none in between is effective before
    later: dict[str, list[tuple[int, int]]] = {}
    for arrival, version in reversed(versions):
        rule = version.rule
        after = later.setdefault(rule.id, [])
        while after and after[-1][1] > version.effective:
            after.pop()
        ends = [settled[rule.id]] if rule.id in settled else []
        ends += [after[-1][0]] if after else []
        if rule.state is not State.RETIRED:
            kept = max(kept_for(version), allowed_lateness) if folds(rule) else kept_for(version)
            found.append((kept, arrival, min(ends) + waits_for(rule) if ends else None))
        settled[rule.id] = min(max(arrival, version.effective + allowed_lateness), settled.get(rule.id, 1 << 63))
        after.append((arrival, version.effective))
    return found
