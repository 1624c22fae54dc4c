"""A stream's engine over arrivals in batches, with evictions and crashes between them."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from typing import Any

from nightjar.rules.engine import Engine
from nightjar.rules.versions import RuleSet
from tests.support.evicting import evicting_early
from tests.support.histories import STREAM, table
from tests.support.reference import Event


def alerts_of(
    ruleset: RuleSet, events: list[Event], cuts: Iterable[int], lost: Collection[int]
) -> list[dict[str, Any]]:
    """The alert records of a stream that reads the events in their order.

    cuts: where batches end, modulo the number of events; lost: the batches before which the engine crashes, and another
    is restored from the deltas, of which it then makes one.
    """
    engine, deltas, alerts = Engine(STREAM, ruleset), [], []
    batches = table(events)
    edges = [0, *sorted(cut % (len(events) + 1) for cut in cuts), len(events)]
    with evicting_early():
        for number, (begin, end) in enumerate(itertools.pairwise(edges)):
            if number in lost:
                before, engine = engine, Engine(STREAM, ruleset)
                engine.restore(deltas)
                engine.resume(before.position)
            clock = events[end - 1]["arrival"] if end else None
            advance = engine.advance(batches.slice(begin, end - begin), clock)
            deltas = [engine.snapshot()] if number in lost else [*deltas, advance.delta]
            alerts += advance.alerts.to_pylist()
    return alerts
