"""From what holds to what is said: new alerts, revisions with new values, and retractions (law 7)."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa

from rules.engine.evaluation import Evaluated
from rules.engine.ledger import Announcement, Content, Ledger, Subject
from rules.engine.plan import GroupPlan
from rules.engine.records import ALERT_SCHEMA, Described, alert_id
from rules.engine.store import EventStore
from rules.engine.strings import Int64Array

Said = list[tuple[int, Subject, Announcement]]
_NO_ALERTS = ALERT_SCHEMA.empty_table()


def announce(
    store: EventStore, ledger: Ledger, plan: GroupPlan, results: list[Evaluated], rows: Int64Array, base: int
) -> Said:
    """What to say after evaluating the store rows `rows`, remembered in the ledger.

    base: of the rows from there on nothing has been said. Nothing is said about what stands announced in the same
    words. Order: retractions, then rule by rule.
    """
    said = _withdrawn(ledger, plan, results, rows, base)
    for result in results:
        said += _alerts(store, ledger, result, base)
    for row, subject, announcement in said:
        ledger.set(row, subject, announcement)
    return said


def _withdrawn(ledger: Ledger, plan: GroupPlan, results: list[Evaluated], rows: Int64Array, base: int) -> Said:
    old = rows[rows < base]
    if not len(old) or not (announced := ledger.announced(old)).any():
        return []
    old = old[announced]
    known = set(old.tolist())
    holding: dict[int, set[Subject]] = defaultdict(set)
    for result in results:
        for row in result.rows[result.violated].tolist():
            if row in known:
                holding[row].add(_subject(result))
    own = {
        Subject(v.rule.id, v.version)
        for versions in plan.versions.values()
        for v in versions
        if v.rule.group_by == plan.group_by
    }
    return [
        (row, subject, Announcement(last.revision + 1, True, last.content))
        for row in old.tolist()
        for subject, last in sorted(ledger.standing(row))
        if subject in own and subject not in holding[row]
    ]


def _subject(result: Evaluated) -> Subject:
    version = result.compiled.version
    return Subject(version.rule.id, version.version)


def _alerts(store: EventStore, ledger: Ledger, result: Evaluated, base: int) -> Said:
    if not len(result.violated):
        return []
    subject, rule = _subject(result), result.compiled.rule
    rows = result.rows[result.violated]
    described = Described(store, result.compiled, result.values, rows, result.violated)
    said: Said = []
    for row, *words in zip(
        rows.tolist(), described.group.to_list(), described.measures.to_list(), described.text().to_list(), strict=True
    ):
        group, measures, text = words
        content = Content(rule.state.value, group, measures, rule.severity.value, text)
        last = ledger.get(row, subject) if row < base else None
        if last is None or last.retracted or last.content != content:
            said.append((row, subject, Announcement(1 if last is None else last.revision + 1, False, content)))
    return said


def alerts_table(store: EventStore, said: Said) -> pa.Table:
    """The announcements as alert records (ALERT_SCHEMA)."""
    if not said:
        return _NO_ALERTS
    rows = np.array([row for row, _, _ in said], np.int64)
    event_ids, times = store.array(store.stream.event_id, rows), store.times[rows].tolist()
    columns = {
        "alert_id": [
            alert_id(subject.rule_id, subject.rule_version, event_id, time)
            for (_, subject, _), event_id, time in zip(said, event_ids.to_pylist(), times, strict=True)
        ],
        "revision": [a.revision for _, _, a in said],
        "kind": ["retraction" if a.retracted else "alert" for _, _, a in said],
        "rule_id": [s.rule_id for _, s, _ in said],
        "rule_version": [s.rule_version for _, s, _ in said],
        "stream": [store.stream.name] * len(said),
        "event_id": event_ids,
        "event_time": store.array(store.stream.event_time, rows),
        **{name: [getattr(a.content, name) for _, _, a in said] for name in Content._fields},
    }
    return pa.table({name: columns[name] for name in ALERT_SCHEMA.names}).cast(ALERT_SCHEMA)
