"""Purpose: what rules conclude about one stream's events, batch by batch.

How it works: `advance` takes a batch in any order, drops duplicates, tells late events, inserts the rest into the
timeline of every group-by, evaluates the rows that came or whose window changed, and compares what holds with what was
announced. A micro-batch is a small backfill and a backfill one large micro-batch: it is the same call.

What it does not do: parse, talk to Kafka or Spark, keep anything durable. Its host stores each advance's delta and
gives them all back through `restore`.

Known limitation: rows that can no longer matter are let go when they are more than those that can, so up to half of the
memory may be theirs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from rules.engine import evaluation
from rules.engine.announce import Said, alerts_table, announce
from rules.engine.evaluation import Evaluated
from rules.engine.ledger import Ledger, entries
from rules.engine.masks import Masks
from rules.engine.plan import Plan, compile_plan
from rules.engine.store import ARRIVAL, LATE, SEQ, EventStore, in_arrival_order, one_batch, physical
from rules.engine.timeline import Timeline
from rules.streams import Stream
from rules.types import Kind
from rules.versions import RuleSet

# Below this many rows it is not worth looking whether half of them could go.
_EVICTION_FLOOR = 4096
_LONG_AGO = -(1 << 62)
_NEVER = 1 << 62


@dataclass(frozen=True)
class Delta:
    """What one advance changed, for durable state: the events taken in and the announcements made.

    events: the stream's fields, arrival_time, arrival_seq and late; announcements: LEDGER_SCHEMA.
    """

    events: pa.Table
    announcements: pa.Table


@dataclass(frozen=True)
class Failure:
    """A measure whose exact value leaves the range of its type at an event, which is therefore no violation."""

    rule_id: str
    rule_version: int
    measure: str
    event_id: str


@dataclass(frozen=True)
class Advance:
    """What a batch led to. alerts: ALERT_SCHEMA, in the order of announcement; late: the late events as they came."""

    alerts: pa.Table
    late: pa.Table
    duplicates: int
    failures: list[Failure]
    delta: Delta
    evaluated: list[Evaluated] = field(repr=False)


class Engine:
    """One stream's retained events and rules.

    stream: the declaration of the events. ruleset: all published versions. batch: evaluate every event whatever its
    lateness (the truth); False: late events count for events that arrive later, and are not evaluated (law 8).
    group_bys: evaluate the rules of these only (None: of all), where others are evaluated elsewhere.
    """

    def __init__(
        self,
        stream: Stream,
        ruleset: RuleSet,
        *,
        batch: bool = False,
        group_bys: frozenset[tuple[str, ...]] | None = None,
    ) -> None:
        self.stream = stream
        self.clock = _LONG_AGO
        self._batch = batch
        self.store = EventStore(stream)
        self._masks = Masks(self.store)
        self._timelines: dict[tuple[str, ...], Timeline] = {}
        self._ledger = Ledger(self.store)
        self._next_seq = 0
        self._look_again_at = _EVICTION_FLOOR
        self._event_columns = [*stream.fields, ARRIVAL]
        self._plan: Plan
        self.set_rules(ruleset, group_bys)

    def set_rules(self, ruleset: RuleSet, group_bys: frozenset[tuple[str, ...]] | None = None) -> None:
        """Evaluate by these versions from now on. A new group-by, or a wider window, starts with all that is held."""
        self._ruleset, self._group_bys = ruleset, group_bys
        reaches = {plan.group_by: plan.reach for plan in self._plan.groups} if self._timelines else {}
        self._plan = compile_plan(self.stream, ruleset, None if self._batch else self._settled, group_bys)
        groups = {plan.group_by: plan for plan in self._plan.groups}
        self._masks.use(self._plan.predicates, {key for plan in groups.values() for key in plan.marks})
        # by then an older version applies to nothing any more, and what only it needed may go
        later = (v.effective for v in ruleset.of_stream(self.stream.name).versions if v.effective > self._settled)
        self._plan_again_at = min(later, default=_NEVER)
        # a timeline may have let go of what only a wider window needs, and the store still has it
        known = {g: t for g, t in self._timelines.items() if g in groups and groups[g].reach <= reaches[g]}
        self._timelines = {}
        for group_by, plan in groups.items():
            timeline = known.get(group_by) or Timeline(self.store, self._masks, group_by)
            timeline.use([*sorted({self._masks[key].word for key in plan.marks}), *sorted(plan.fields)])
            if group_by not in known:
                timeline.insert(0, _LONG_AGO, 0)
            self._timelines[group_by] = timeline

    @property
    def _settled(self) -> int:
        """Event time (µs) before which no event will be evaluated any more."""
        return max(self.clock - self.stream.allowed_lateness, _LONG_AGO)

    @property
    def horizon(self) -> int:
        """Event time (µs) before which no rule can still need an event (law 11)."""
        return self._settled - self._plan.reach

    @property
    def retained(self) -> dict[tuple[str, ...], int]:
        """How many events each group-by still needs."""
        return {p.group_by: self._timelines[p.group_by].retained(self._settled - p.reach) for p in self._plan.groups}

    @property
    def rows(self) -> int:
        """How many events are held, needed or not."""
        return self.store.rows

    def advance(self, events: pa.Table, clock: int | None = None) -> Advance:
        """Take a batch in and say what it led to.

        events: the stream's fields (their Arrow types) and arrival_time (timestamp[us, UTC]), optionally partition and
        offset, in any row order. clock: µs; no event of a later batch has an arrival before it.
        """
        fresh, duplicates = self._admit(in_arrival_order(one_batch(events)))
        base = self.store.rows
        arrival = physical(fresh.column(ARRIVAL), Kind.TIMESTAMP)
        times = physical(fresh.column(self.stream.event_time), Kind.TIMESTAMP)
        seq = np.arange(self._next_seq, self._next_seq + fresh.num_rows)
        late = np.zeros(fresh.num_rows, np.uint8)
        if not self._batch:
            late = (arrival - times > self.stream.allowed_lateness).view(np.uint8)
        self._next_seq += fresh.num_rows
        self.store.append(fresh, arrival, seq, late)
        self._masks.extend()
        evaluated, said = self._evaluate(base, self.store.rows if self._ledger.meet(base, self._settled) else base)
        taken = fresh.select(self._event_columns)
        taken = taken.append_column(SEQ, pa.array(seq)).append_column(LATE, pa.array(late.astype(np.bool_)))
        delta = Delta(pa.Table.from_batches([taken]), entries(self.store, said))
        advance = Advance(
            alerts_table(self.store, said),
            delta.events.filter(taken.column(LATE)) if late.any() else delta.events.slice(0, 0),
            duplicates,
            [failure for result in evaluated if result.overflows for failure in self._failures(result)],
            delta,
            evaluated,
        )
        if clock is not None and clock > self.clock:
            self.clock = clock
            if self._settled >= self._plan_again_at:
                self.set_rules(self._ruleset, self._group_bys)
            self._evict()
        return advance

    def restore(self, delta: Delta) -> None:
        """Take back what an earlier engine had taken in and announced; evaluates nothing. Deltas in their order.

        A delta may lack fields that were declared after it was written: they are NULL.
        """
        known, _ = self._admit(one_batch(self.stream.completed(delta.events)))
        base = self.store.rows
        if known.num_rows:
            seq = physical(known.column(SEQ), Kind.INT64)
            late = known.column(LATE).to_numpy(zero_copy_only=False).view(np.uint8)
            self.store.append(known, physical(known.column(ARRIVAL), Kind.TIMESTAMP), seq, late)
            self._next_seq = max(self._next_seq, int(seq.max()) + 1)
            self._masks.extend()
            for timeline in self._timelines.values():
                timeline.insert(base, _LONG_AGO, 0)
            self._ledger.meet(base, _LONG_AGO)
        self._ledger.restore(delta.announcements)

    def snapshot(self) -> Delta:
        """All that is still needed, as one delta."""
        needed = np.flatnonzero(self.store.times[: self.store.rows] >= self.horizon)
        return Delta(self.store.table(needed), self._ledger.entries(self._settled))

    def _admit(self, events: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        first = self.store.unseen(events.column(self.stream.event_id))
        duplicates = events.num_rows - len(first)
        return (events.take(first) if duplicates else events), duplicates

    def _evaluate(self, base: int, unannounced: int) -> tuple[list[Evaluated], Said]:
        """Evaluate what the rows from `base` on touch. Of the rows from `unannounced` on nothing has been said."""
        results: list[Evaluated] = []
        said: Said = []
        for plan in self._plan.groups:
            timeline = self._timelines[plan.group_by]
            runs = timeline.insert(base, self._settled - plan.reach, plan.reach)
            if not runs.rows:
                continue
            found = list(evaluation.evaluate(timeline, self._masks, plan, runs))
            if not self._batch:
                said += announce(self.store, self._ledger, plan, found, timeline.rows[runs.at], unannounced)
            results += found
        return results, said

    def _failures(self, result: Evaluated) -> list[Failure]:
        version = result.compiled.version
        rows = result.rows[[overflow.at for overflow in result.overflows]]
        event_ids = self.store.array(self.stream.event_id, rows)
        return [
            Failure(version.rule.id, version.version, overflow.measure, event_id.as_py())
            for overflow, event_id in zip(result.overflows, event_ids, strict=True)
        ]

    def _evict(self) -> None:
        """Let go of what is no longer needed, once that is more than half of what is held."""
        held = self.store.rows
        if held < self._look_again_at:
            return
        needed = self.store.times[:held] >= self.horizon
        rows = np.flatnonzero(needed)
        self._look_again_at = max(_EVICTION_FLOOR, 2 * len(rows))
        if 2 * len(rows) > held:
            return
        if self.store.codes_given > 4 * len(rows) + _EVICTION_FLOOR:
            self._start_anew()
            return
        new_row = np.where(needed, np.cumsum(needed) - 1, -1)
        self.store.keep(rows)
        self._masks.keep(rows)
        self._ledger.renumber(new_row, self._settled)
        for timeline in self._timelines.values():
            timeline.renumber(new_row)

    def _start_anew(self) -> None:
        """Forget also the values of fields that no event has any more, which takes longer: all codes change."""
        needed, next_seq = self.snapshot(), self._next_seq
        self.store = EventStore(self.stream)
        self._masks = Masks(self.store)
        self._ledger = Ledger(self.store)
        self._timelines = {}
        self.set_rules(self._ruleset, self._group_bys)
        self.restore(needed)
        self._next_seq = next_seq
