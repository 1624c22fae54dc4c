"""From violations to announcements: new alerts, revisions with new values, and retractions (S7)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nightjar.rules.alert_ids import alert_id
from nightjar.rules.alert_schema import ALERT_SCHEMA
from nightjar.rules.allowing import allowed_by
from nightjar.rules.engine.alert_columns import Described
from nightjar.rules.engine.columns import table_of
from nightjar.rules.engine.evaluation import RuleResult
from nightjar.rules.engine.ledger import LEDGER_SCHEMA, NO_ANNOUNCEMENTS, Ledger, Subject
from nightjar.rules.engine.muting import Muting
from nightjar.rules.engine.plan import GroupPlan, PlanKey
from nightjar.rules.engine.store import EventStore
from nightjar.rules.engine.strings import Int64Array
from nightjar.rules.retention import waits_for
from nightjar.rules.states import Revisions

_NO_ROWS: Int64Array = np.empty(0, np.int64)
_NO_ALERTS = ALERT_SCHEMA.empty_table()
_KINDS = {False: "alert", True: "retraction"}


class Announcements(NamedTuple):
    """What is announced. rows: the store row of each announcement; table: LEDGER_SCHEMA."""

    rows: Int64Array
    table: pa.Table


def announce(
    store: EventStore,
    ledger: Ledger,
    plan: GroupPlan,
    results: list[RuleResult],
    rows: Int64Array,
    base: int,
    settled: int,
) -> list[Announcements]:
    """What to announce after evaluating the store rows `rows`; results: the rule versions that are violated at some.

    base: nothing has been announced about the rows from there on; settled: see `with_muted`. An alert whose content has
    not changed is not announced again. Order: retractions, then rule by rule.
    """
    old = rows[rows < base]
    old = old[ledger.announced(old)] if len(old) else old
    announcements = [_withdrawn(store, ledger, plan, results, old, settled)] if len(old) else []
    return announcements + [_alerts(store, ledger, result, base) for result in results]


def with_muted(
    store: EventStore,
    ledger: Ledger,
    muting: Muting,
    announcements: list[Announcements],
    settled: int,
    waits: Mapping[tuple[str, int], int],
) -> list[Announcements]:
    """The announcements with their column `muted`, then those of other alerts whose `muted` they change.

    settled: event time (µs) before which nothing is announced any more, but of versions that wait for what follows an
    event; waits: for how long before it (µs) these are still announced, by rule id and version.
    """
    whole = _together(announcements)
    muted, flips = muting.take(whole.table, settled, waits)
    at = whole.table.column_names.index("muted")
    found = [Announcements(whole.rows, whole.table.set_column(at, "muted", muted))]
    rows = store.ids.find(pa.array([flip.place.event_id.decode() for flip in flips], pa.string()))
    turned = []
    for flip, row in zip(flips, rows.tolist(), strict=True):
        if row < 0 or store.times[row] != flip.place.time or not ledger.announced(np.array([row]))[0]:
            continue  # after a rebuild the event has not been read yet
        last = ledger.unretracted(row)[Subject(flip.chain.rule_id, flip.chain.rule_version)]
        muting.announced(flip, last.revision + 1)
        turned.append((row, last, flip.muted))
    if turned:
        at_rows, lasts, flags = zip(*turned, strict=True)
        table = ledger.read(np.array([last.entry for last in lasts]))
        changed = {"revision": pa.array([last.revision + 1 for last in lasts]), "muted": pa.array(flags)}
        columns = dict(zip(table.column_names, table.columns, strict=True))
        found.append(Announcements(np.array(at_rows), table_of({**columns, **changed}, LEDGER_SCHEMA)))
    return found


def remember(ledger: Ledger, announcements: list[Announcements]) -> Announcements:
    """Append the announcements to the ledger; returns all of them as one."""
    together = _together(announcements)
    ledger.append(*together)
    return together


def _together(announcements: list[Announcements]) -> Announcements:
    if not announcements:
        return Announcements(_NO_ROWS, NO_ANNOUNCEMENTS)
    if len(announcements) == 1:
        return announcements[0]
    return Announcements(
        np.concatenate([part.rows for part in announcements]), pa.concat_tables([part.table for part in announcements])
    )


def _withdrawn(
    store: EventStore, ledger: Ledger, plan: GroupPlan, results: list[RuleResult], old: Int64Array, settled: int
) -> Announcements:
    """Retractions of the alerts at these rows whose condition no longer holds."""
    holding: dict[int, set[Subject]] = defaultdict(set)
    for result in results:
        for row in np.intersect1d(result.rows[result.violated], old).tolist():
            holding[row].add(_subject(result))
    # from which event time on each of its versions announces anything
    own = {
        Subject(v.rule.id, v.version): settled - waits_for(v.rule)
        for versions in plan.versions.values()
        for v in versions
        if PlanKey.of(v.rule) == plan.key
    }
    withdrawn = [
        (row, last)
        for row in old.tolist()
        for subject, last in ledger.unretracted(row).items()
        if subject not in holding[row] and subject in own and store.times[row] >= own[subject]
    ]
    if not withdrawn:
        return Announcements(_NO_ROWS, NO_ANNOUNCEMENTS)
    table = ledger.read(np.array([last.entry for _, last in withdrawn]))
    changed = {
        "revision": pc.add(table.column("revision"), 1),
        "retracted": pa.repeat(pa.scalar(value=True), len(withdrawn)),
    }
    return Announcements(
        np.array([row for row, _ in withdrawn]),
        table_of({**dict(zip(table.column_names, table.columns, strict=True)), **changed}, LEDGER_SCHEMA),
    )


def _subject(result: RuleResult) -> Subject:
    version = result.compiled.version
    return Subject(*version.key)


def _alerts(store: EventStore, ledger: Ledger, result: RuleResult, base: int) -> Announcements:
    """The new alerts and revisions of one rule version."""
    subject, rule = _subject(result), result.compiled.rule
    rows = result.rows[result.violated]
    described = Described(store, result.compiled, result.values, rows, result.violated, result.allowed)
    silenced = described.silenced
    texts = {"group": described.group, "measures": described.measures, "text": described.text()}
    revisions = np.ones(len(rows), np.int64)
    old = np.flatnonzero(rows < base)
    old = old[ledger.announced(rows[old])]
    if len(old):
        constant = {"rule_state": rule.state.value, "severity": rule.severity.value}
        changed = np.ones(len(rows), np.bool_)
        for at, last in zip(old.tolist(), ledger.get(rows[old], subject), strict=True):
            if last is not None:
                revisions[at] = last.revision + 1
                content = {name: column[at].as_py() for name, column in texts.items()} | constant
                changed[at] = last.retracted or _differs(rule.revisions, ledger.content(last.entry), content)
        rows, revisions = rows[changed], revisions[changed]
        texts = {name: column.filter(pa.array(changed)) for name, column in texts.items()}
        silenced = None if silenced is None else silenced.filter(pa.array(changed))
    columns = {
        "event_id": store.array(store.stream.event_id, rows),
        "event_time": store.array(store.stream.event_time, rows),
        "revision": pa.array(revisions),
        **result.compiled.in_common(len(rows)),
        **texts,
    }
    if silenced is not None:
        columns["muted"] = silenced
    return Announcements(rows, table_of(columns, LEDGER_SCHEMA))


def _differs(revisions: Revisions, before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Whether a change of an alert's content is announced (CONTENT)."""
    if revisions is Revisions.VALUES:
        return before != now
    return allowed_by(before["measures"]) != allowed_by(now["measures"])


def alerts_table(store: EventStore, announcements: Announcements) -> pa.Table:
    """The announcements as alert records (ALERT_SCHEMA)."""
    if not len(announcements.rows):
        return _NO_ALERTS
    rules, versions, events, groups = (
        announcements.table.column(name).to_pylist() for name in ("rule_id", "rule_version", "event_id", "group")
    )
    named = zip(rules, versions, events, store.times[announcements.rows].tolist(), groups, strict=True)
    columns = {
        **dict(zip(LEDGER_SCHEMA.names, announcements.table.columns, strict=True)),
        "alert_id": pa.array([alert_id(*alert) for alert in named], pa.string()),
        "kind": pa.array([_KINDS[retracted] for retracted in announcements.table.column("retracted").to_pylist()]),
        "stream": pa.repeat(store.stream.name, len(announcements.rows)),
    }
    return table_of(columns, ALERT_SCHEMA)
