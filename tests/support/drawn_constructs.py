"""Which constructs of rules, tables and streams a random history or run has."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from tests.support.histories import LOOKED_UP, TABLE
from tests.support.random_cases import History
from tests.support.random_runs import Restart, Run
from tests.support.reference import Change, Event

_CALL = re.compile(r"\b([A-Z][A-Z_]+)\(")
_NO_CALLS = {"AND", "OR", "NOT", "IN"}


def constructs(drawn: History | Run) -> set[str]:
    """Names of what is in it: functions, and options as a rule or a measure writes them, `measure.` before the latter;
    calls of conditions, with parentheses; further ones in words."""
    if isinstance(drawn, History):
        messages = [message for happening in drawn.happenings for message in happening.messages]
        events, changes = drawn.events, drawn.changes
        found = {"a crash"} if any(happening.crash for happening in drawn.happenings) else set()
        arrived = [(happening.at, each) for happening in drawn.happenings for each in happening.changes]
    else:
        batches = [step for step in drawn.steps if not isinstance(step, Restart)]
        messages = [message.written for batch in batches for message in batch.messages]
        events, changes = drawn.events, [each.change for each in drawn.changes]
        found = {*_of_run(drawn)}
        arrived = [(each.arrival, each.change) for each in drawn.changes]
    stream = drawn.stream if isinstance(drawn, History) else drawn.declared
    for message in messages:
        found |= {*_of_message(message)}
    found |= {*_of_changes(changes, arrived)}
    found |= {*_of_events(events, stream.event_id, stream.event_time, stream.tiebreaker, stream.allowed_lateness)}
    return found


def _of_message(message: dict[str, Any]) -> Iterator[str]:
    if "control" in message:
        yield f"control {message['control']}"
        return
    yield from (key for key in message if key not in ("id", "stream", "author", "reason"))
    yield f"state {message.get('state')}"
    measures = message.get("measures", {})
    texts = [message.get("where", ""), message["when"], message.get("unless", {}).get("where", "")]
    for measure in measures.values():
        if isinstance(measure, str):
            yield "a computed measure"
            texts.append(measure)
            continue
        yield from (f"measure.{key}" for key in measure)
        texts += [measure.get(key, "") for key in ("where", "since", "until")] + [*measure.get("sequence", ())]
        if any(re.search(rf"\b{name}\b", measure.get("where", "")) for name in measures):
            yield "a measure of measures"
        if measure.get("over_alerts"):
            yield f"{next(iter(measure))} over alerts"
        if measure.get("calendar"):
            yield f"calendar {measure['calendar']}"
    if any(not isinstance(measure, str) and "resolution" in measure for measure in measures.values()):
        yield "a resolution"
    text = " ".join(texts)
    yield from (f"{name}()" for name in _CALL.findall(text) if name not in _NO_CALLS)
    yield from (name for name, sql in (("a list", f"IN {TABLE}"), ("a value", LOOKED_UP)) if sql in text)


def _of_changes(changes: list[Change], arrived: Iterable[tuple[int, Change]]) -> Iterator[str]:
    for _, is_set, _, levels in changes:
        yield "rows set" if is_set else "rows removed"
        if is_set and any(level is not None for level in levels):
            yield "values of rows"
    for at, (_, _, begins, _) in arrived:
        if begins != at:
            yield "a change dated back" if begins < at else "a change dated ahead"


def _of_events(
    events: list[Event], event_id: str, event_time: str, tiebreaker: str | None, allowed_lateness: int
) -> Iterator[str]:
    if any(event["arrival"] - event[event_time] > allowed_lateness for event in events):
        yield "a late event"
    if any(event["arrival"] < event[event_time] for event in events):
        yield "an early event"
    ids = Counter(event[event_id] for event in events)
    distinct = {(event[event_id], event[event_time]) for event in events}
    if len(ids) < len(events):
        yield "an event again"
    if len(ids) < len(distinct):
        yield "two events of an id"
    if tiebreaker is not None:
        ties = {(event[event_time], event[tiebreaker]) for event in events}
        if len({time for time, _ in ties}) < len(ties):
            yield "an order of equal times"


def _of_run(run: Run) -> Iterator[str]:
    batches = [step for step in run.steps if not isinstance(step, Restart)]
    starts = [step for step in run.steps if isinstance(step, Restart)]
    yield from (
        name
        for name, is_there in {
            "a second stream": run.beside is not None,
            "a union": bool(run.declared.members),
            "priming in a union": run.primes and bool(run.declared.members),
            "a batch again": any(batch.again for batch in batches),
            "other settings": len({*starts}) > 1,
            "approvals": any(start.approvals for start in starts),
            "priming": run.primes,
            "priming with a table": run.primes and bool(run.changes),
        }.items()
        if is_there
    )
    entities = {*run.declared.entities}
    grouped = [message.written["group_by"] for batch in batches for message in batch.messages if _is_rule(message)]
    if any(not entities & {*group_by} for group_by in grouped):
        yield "a shuffle key that is made"
        if run.changes:
            yield "a shuffle key that is made, with a table"


def _is_rule(message: Any) -> bool:
    return "when" in message.written and message.written["stream"] != "elsewhere"
