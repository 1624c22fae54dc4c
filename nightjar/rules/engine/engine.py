"""Purpose: evaluate rules on one stream's events, batch by batch.

How it works: `advance` takes a batch in any order, drops duplicates, separates late events, inserts all into the
timeline of every group-by, evaluates the rows that are new or whose window changed, and compares the violations with
what was announced. A micro-batch is a small backfill and a backfill one large micro-batch: it is the same call.

Two event times only grow, and only at the end of an advance that is given a clock; `prime` alone moves `horizon` back.
No event before `settled` is evaluated any more. An event before `horizon` has no effect: it is in no window, and its id
is unknown; those that have passed it are in the windows of measures with a resolution, as steps (see folding). So an
engine's results depend on the batches, clocks, rules and history it was given, and not on what it still has in memory.

What it does not do: parse, talk to Kafka or Spark, store anything. Its host stores each advance's delta, and clock,
settled and horizon after it; a new engine is given them through `restore` and `resume`.

Known limitation: rows before the horizon are evicted when a block of them is full (see store), or when they are more
than the others: an event far ahead of the others in its batch keeps its block.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nightjar.rules.engine import evaluation, violations
from nightjar.rules.engine.advance import Advance, Delta, Events, Failure, InputRows, Position, brought
from nightjar.rules.engine.announce import Announcements, alerts_table, announce, remember, with_muted
from nightjar.rules.engine.columns import Mask, columns_of, one_batch, physical
from nightjar.rules.engine.evaluation import ProgramResults, RuleResult
from nightjar.rules.engine.folding import MOST_LATE, Folding
from nightjar.rules.engine.folds import Folds
from nightjar.rules.engine.ledger import LEDGER_SCHEMA, NO_ANNOUNCEMENTS, Ledger
from nightjar.rules.engine.muting import Muting
from nightjar.rules.engine.past import NO_PAST, Past
from nightjar.rules.engine.plan import GroupPlan, Plan, PlanKey, compile_plan
from nightjar.rules.engine.predicate_bitmaps import Masks
from nightjar.rules.engine.store import ARRIVAL, KNOWN, LATE, LONG_AGO, SEQ, EventStore, in_arrival_order
from nightjar.rules.engine.strings import Int64Array
from nightjar.rules.engine.table_rows import EVERY, TableRows
from nightjar.rules.engine.timeline import Clocks, Needed, Timeline
from nightjar.rules.retention import waits_for
from nightjar.rules.streams import Stream
from nightjar.rules.types import Kind
from nightjar.rules.versions import RuleSet

# With fewer rows than this it is not worth checking whether half of them can be evicted.
_EVICTION_FLOOR = 4096
# Released rows keep their numbers: all rows are renumbered once the numbers are this many times `_look_again_at`.
_MOST_GONE = 2
_NEVER = 1 << 62
_NO_ROWS = np.empty(0, np.int64)


class Engine:
    """One stream's retained events and rules.

    stream: the declaration of the events. ruleset: all published versions. batch: evaluate every event whatever its
    lateness (the truth); False: late events count for events that arrive later, and are not evaluated (S8.3, S8.4).
    group_bys: evaluate only the rules of these (None: of all), if others are evaluated elsewhere.

    clock: µs, the latest given; settled: event time (µs) before which no event is evaluated any more; horizon: event
    time (µs) before which events have no effect; folded: event time (µs) before which events are in steps for measures
    with a resolution, later than `horizon` only where that has moved back.
    """

    def __init__(
        self,
        stream: Stream,
        ruleset: RuleSet,
        *,
        batch: bool = False,
        group_bys: frozenset[tuple[str, ...]] | None = None,
        tables: TableRows | None = None,
    ) -> None:
        self.stream = stream
        self.tables = tables
        self.clock = self.settled = self.horizon = self.folded = LONG_AGO
        self._batch = batch
        self.store = EventStore(stream, tables)
        self._masks = self._new_masks()
        self._timelines: dict[PlanKey, Timeline] = {}
        self._ledger = Ledger(self.store)
        self._muting = Muting()
        self._folding = Folding(self.store, self._masks)
        self._next_seq = 0
        self._look_again_at = _EVICTION_FLOOR
        self._event_columns = [*stream.fields, ARRIVAL]
        self._noted = [KNOWN] if stream.tables else []
        self._plan = Plan((), {})
        self.set_rules(ruleset, group_bys)

    def set_rules(self, ruleset: RuleSet, group_bys: frozenset[tuple[str, ...]] | None = None) -> None:
        """Evaluate by these versions from now on. A new group-by, or a wider window, sees the events from `horizon` on.

        Evaluates nothing: new versions apply to an event when it arrives, or is evaluated again.
        """
        self._ruleset, self._group_bys = ruleset, group_bys
        self._plan = compile_plan(
            self.stream, ruleset, None if self._batch else self.settled, group_bys, self._plan.compiled
        )
        groups = {plan.key: plan for plan in self._plan.groups}
        changed = self._masks.use(self._plan.predicates, {key for plan in groups.values() for key in plan.marks})
        # by then an older version applies to nothing any more, and what only it needed may be evicted
        versions = ruleset.of_stream(self.stream.name).versions
        waits = {0, *(waits_for(version.rule) for version in versions)}
        ends = (version.effective + wait for version in versions for wait in waits)
        self._plan_again_at = min((each for each in ends if each > self.settled), default=_NEVER)
        if not self._batch:
            self._folding.use(self._plan, self.folded)
        # a timeline may have evicted what only a wider window needs, while the store still has it
        known = {
            key: timeline
            for key, timeline in self._timelines.items()
            if key in groups and timeline.complete_since <= self._needed(groups[key]).since
        }
        self._timelines = {}
        for key, plan in groups.items():
            timeline = known.get(key) or Timeline(self.store, self._masks, plan.group_by)
            timeline.steps = self._folding.of(plan.group_by)
            timeline.use(sorted({self._masks[mark].word for mark in plan.marks}), sorted(plan.fields), changed)
            if key not in known:
                timeline.take_in(0, self.horizon)
            self._timelines[key] = timeline

    def _new_masks(self) -> Masks:
        return Masks(self.store, None if self._batch else MOST_LATE * self.stream.allowed_lateness)

    def _needed(self, plan: GroupPlan) -> Needed:
        return Needed(self.horizon, self.settled, plan.reach, plan.looks_at_others, self.folded, plan.kept)

    @property
    def announced_since(self) -> int:
        """Event time (µs) before which no version announces anything any more."""
        return self.settled - self._plan.waiting

    @property
    def unfit(self) -> dict[tuple[str, int], str]:
        """Why versions cannot be evaluated on the stream as declared, by rule id and version."""
        return self._plan.unfit

    @property
    def retained(self) -> dict[tuple[str, ...], int]:
        """How many events each group-by still needs (S11.1)."""
        found: dict[tuple[str, ...], int] = {}
        for plan in self._plan.groups:
            held = self._timelines[plan.key].retained(self._needed(plan).since)
            found[plan.group_by] = max(held, found.get(plan.group_by, 0))
        return found

    @property
    def rows(self) -> int:
        """How many events are held, needed or not."""
        return self.store.resident

    def advance(self, events: pa.Table, clock: int | None = None, known: int | None = None) -> Advance:
        """Process a batch and return the results.

        events: the stream's fields (their Arrow types) and arrival_time (timestamp[us, UTC]), optionally partition and
        offset, in any row order. An optional boolean column `late` marks the late events; otherwise these are the ones
        that arrived more than `allowed_lateness` after they happened, and those before `settled`.
        clock: µs, the stream's clock; it settles events more than `allowed_lateness` before it. Of the truth: the time
        before which all events are known, if it is not that of the last one.
        known: the position up to which the events see changes of tables; None: each sees those that had arrived when
        it did, or of a batch engine all.
        """
        batch, columns, places = in_arrival_order(one_batch(events))
        arrival = physical(columns[ARRIVAL], Kind.TIMESTAMP)
        times = physical(columns[self.stream.event_time], Kind.TIMESTAMP)
        late = self._late(columns, arrival, times)
        dead = (times < self.horizon).nonzero()[0]
        fresh = self._admit(columns[self.stream.event_id], dead)
        dead = self._unknown(columns[self.stream.event_id], dead, fresh) if len(dead) else dead
        base, rows = self.store.rows, len(fresh)
        reported = np.sort(np.append(fresh[late[fresh] != 0], dead)) if np.count_nonzero(late) else dead
        if rows < batch.num_rows:
            columns, arrival, late = columns_of(batch.take(pa.array(fresh))), arrival[fresh], late[fresh]
        seq = np.arange(self._next_seq, self._next_seq + rows)
        self._next_seq += rows
        if self.stream.tables:
            columns[KNOWN] = self._known(arrival, known)
        self.store.append(columns, arrival, seq, late)
        self._masks.extend()
        met = self._ledger.meet(base, self.announced_since)
        evaluated, announced = self._evaluate(base, self.store.rows if met else base, self._clocks(clock))
        again = _NO_ROWS if rows == batch.num_rows else np.delete(np.arange(batch.num_rows), np.append(fresh, dead))
        fresh, late_rows, again = (at if places is None else places[at] for at in (fresh, reported, again))
        alerts, brought_by = alerts_table(self.store, announced), brought(announced.rows, base, fresh)
        failures = [f for each in evaluated for result in each.overflown for f in self._failures(result, base, fresh)]
        folds = {} if clock is None or self._batch else self._settle(clock)  # after this, rows may have other numbers
        return Advance(
            alerts,
            InputRows(fresh, late_rows, again, brought_by),
            failures,
            evaluated,
            announced.table,
            folds,
            Events(batch, reported, {name: columns[name] for name in (*self._event_columns, *self._noted)}, seq, late),
        )

    def _known(self, arrival: Int64Array, known: int | None, noted: pa.Array | None = None) -> pa.Array:
        """Up to which position events see changes of tables; see `advance`. noted: what is known of some of them."""
        if known is None and not self._batch and self.tables is not None:
            of_each = self.tables.known_at(arrival)
        else:
            of_each = np.full(len(arrival), EVERY if known is None else known)
        found = pa.array(of_each)
        return found if noted is None else pc.coalesce(noted, found)

    def _clocks(self, clock: int | None) -> Clocks:
        """The clock before and after a batch. clock: that of the batch; the truth's is the last event's time."""
        if clock is None and self._batch and self.store.rows:
            clock = int(self.store.times[: self.store.rows].max())
        return Clocks(self.clock, max(self.clock, self.clock if clock is None else clock))

    def _late(self, columns: Mapping[str, pa.Array], arrival: Int64Array, times: Int64Array) -> Mask:
        if self._batch:
            return np.zeros(len(times), np.uint8)
        if LATE in columns:
            return physical(columns[LATE], Kind.BOOLEAN).astype(np.uint8)
        late: Mask = ((arrival - times > self.stream.allowed_lateness) | (times < self.settled)).view(np.uint8)
        return late

    def _settle(self, clock: int) -> Folds:
        """Advance the clock: the only place where a running engine changes which events have an effect.

        Returns what events have been folded into.
        """
        self.clock = max(self.clock, clock)
        self.settled = max(self.settled, self.clock - self.stream.allowed_lateness)
        if self.settled >= self._plan_again_at:
            self.set_rules(self._ruleset, self._group_bys)
        folds: Folds = {}
        if self._plan.resolution:
            self.horizon = max(self.horizon, self._folding.horizon(self._plan, self.settled, self.horizon))
            folds = self._folding.settle(self.folded, self.horizon, self.settled)
        else:
            self.horizon = max(self.horizon, self.settled - self._plan.of_rows)
        self.folded = max(self.folded, self.horizon)
        self._ledger.drop_settled(self.announced_since)
        self._muting.drop_settled(self.announced_since)
        self._evict()
        return folds

    @property
    def position(self) -> Position:
        """What another engine needs beside the deltas to continue."""
        folding = self._folding.held, self.folded
        return Position(self.clock, self.settled, self.horizon, *folding, self._plan.waiting)

    def restore(self, deltas: Iterable[Delta], events: int = 0, *, since: int | None = None) -> None:
        """Restore the events and announcements of an earlier engine; call `resume` after the last delta.

        events: about how many the deltas hold, to make room for them at once.

        Evaluates nothing. Deltas may come in any order, and events and announcements may be in several of them; what
        events have been folded into is added up, so it must be in one. Of two events with one id the later (by event
        time) counts: the other was before the horizon when it arrived; but none counts whose id an event has that is
        here and happened from `since` (µs) on. A delta may lack fields that were declared after it was written: they
        are NULL.
        """
        base = self.store.rows
        self.store.reserve(events)
        announcements = [NO_ANNOUNCEMENTS]
        for delta in deltas:
            self._hold(delta.events, since)
            self._folding.restore(delta.folds)
            announcements.append(delta.announcements)
        self.store.place_all()  # once: a log is not in the order of arrival
        self._masks.extend()
        for timeline in self._timelines.values():  # once: segments that grow delta by delta would move again and again
            timeline.take_in(base, LONG_AGO)
            timeline.forget_marks()
        self._ledger.meet(base, LONG_AGO)
        announced = pa.concat_tables(announcements)
        self._ledger.restore(announced)
        self._muting.restore(announced)
        if since is None and len(superseded := self.store.superseded):
            self._keep(np.setdiff1d(self.store.since(LONG_AGO), superseded, assume_unique=True))

    def _hold(self, events: pa.Table, since: int | None) -> None:
        """Add the events of a delta to the store."""
        batch = one_batch(self.stream.completed(events))
        times = physical(batch.column(self.stream.event_time), Kind.TIMESTAMP) if since is None else since
        unseen = self.store.unseen(batch.column(self.stream.event_id), times)
        if not len(unseen):
            return
        known = columns_of(batch if len(unseen) == batch.num_rows else batch.take(pa.array(unseen)))
        seq = physical(known[SEQ], Kind.INT64)
        late = known[LATE].to_numpy(zero_copy_only=False).view(np.uint8)
        arrival = physical(known[ARRIVAL], Kind.TIMESTAMP)
        if self.stream.tables:  # events from before there were some, and those of history, see what had arrived
            known[KNOWN] = self._known(arrival, None, known.get(KNOWN))
        self.store.append(known, arrival, seq, late, placing=False)
        self._next_seq = max(self._next_seq, int(seq.max()) + 1)

    def resume(self, position: Position) -> None:
        """Continue as the engine whose deltas were restored, from its position after the last one."""
        self.clock, self.settled = max(self.clock, position.clock), max(self.settled, position.settled)
        self.horizon = max(self.horizon, position.horizon)
        self.folded = max(self.folded, position.folded, self.horizon)
        self._folding.resume(position.held, self.folded)
        if self.settled >= self._plan_again_at:
            self.set_rules(self._ruleset, self._group_bys)
        self._ledger.drop_settled(self.announced_since)
        self._evict()

    def prime(
        self, history: Delta, missed: pa.Table, horizon: int, past: Past = NO_PAST, *, settled: int = LONG_AGO
    ) -> Delta:
        """Take in events from before the horizon, which moves back to `horizon` (µs): from now on the engine is one
        whose rules had needed them all along (S8.6). Evaluates nothing.

        history: all events between both horizons that arrived before a moment, the first of each id that is `unknown`.
        missed: those that came after it (the stream's fields and arrival_time, in any order). past: what earlier ones,
        which had arrived before that moment, have been folded into. settled: event time (µs) before which the stream
        evaluated nothing any more then; an engine that began later may have heard of earlier clocks only. Returns what
        is to be stored beside `history`.
        """
        self.settled = max(self.settled, settled)
        self._keep(self.store.since(self.horizon))  # what is gone stays so, although its rows may still be here
        self.horizon = min(self.horizon, max(horizon, self._needed_rows_since))
        self._timelines = {}  # they may have evicted what is needed again
        before = self.store.rows
        self.restore([history], since=self.horizon)
        read = self.store.rows
        late, *_ = in_arrival_order(one_batch(missed.select(self._event_columns)))
        seq = np.arange(self._next_seq, self._next_seq + late.num_rows)
        numbered = pa.Table.from_batches([late]).append_column(SEQ, pa.array(seq, pa.int64()))
        delta = Delta(numbered.append_column(LATE, pa.repeat(pa.scalar(value=True), late.num_rows)), NO_ANNOUNCEMENTS)
        self.restore([delta], since=self.horizon)
        rows = np.arange(before, self.store.rows)
        times = self.store.times[rows]
        unfolded = rows[(times < self.folded) & ((rows >= read) | (times >= past.until))]
        folds = self._folding.take_in(past, unfolded)
        self.set_rules(self._ruleset, self._group_bys)
        return Delta(self.store.table(np.arange(read, self.store.rows)), NO_ANNOUNCEMENTS, folds)

    def unknown(self, events: pa.Table) -> pa.Table:
        """Those of some events whose ids belong to none that is here (the stream's fields)."""
        rows = self.store.ids.find(one_batch(events.select([self.stream.event_id])).column(0))
        is_known = (rows >= 0) & (self.store.times[rows] >= self.horizon)
        return events.filter(pa.array(~is_known))

    @property
    def needed_since(self) -> int:
        """Event time (µs) from which on the rules need events, where they are to be had: at most `horizon`."""
        return min(self.horizon, self._needed_rows_since, self._folding.needed_since(self._plan, self.settled))

    @property
    def _needed_rows_since(self) -> int:
        """The horizon of an engine that has had these rules all along, but for late events."""
        plan = self._plan
        return self._folding.target(plan, self.settled) if plan.resolution else self.settled - plan.of_rows

    def snapshot(self) -> Delta:
        """Everything that is still needed, as one delta."""
        announced = self._ledger.entries(self.announced_since)
        announcements = pa.concat_tables([announced, self._muting.entries(self.settled, LEDGER_SCHEMA, announced)])
        return Delta(self.store.table(self.store.since(self.horizon)), announcements, self._folding.tables())

    def _admit(self, ids: pa.Array, dead: Int64Array) -> Int64Array:
        """The indices of the first arrivals of their ids among all but the dead events, as EventStore.unseen."""
        if not len(dead):
            return self.store.unseen(ids, self.horizon)
        alive = np.delete(np.arange(len(ids)), dead)
        return alive[self.store.unseen(ids.take(pa.array(alive)), self.horizon)]

    def _unknown(self, ids: pa.Array, dead: Int64Array, fresh: Int64Array) -> Int64Array:
        """The indices of events before the horizon whose id does not belong to an earlier event."""
        base = self.store.rows
        rows = self.store.ids.find(ids.take(pa.array(dead)))
        came = np.full(len(dead), len(ids))  # the index in the batch of the event that has the id
        came[(rows >= 0) & (rows < base)] = -1
        came[rows >= base] = fresh[rows[rows >= base] - base]
        known = rows[came < 0]
        came[came < 0] = np.where(self.store.times[known] >= self.horizon, -1, len(ids))
        return dead[came > dead]

    def _evaluate(self, base: int, unannounced: int, clocks: Clocks) -> tuple[list[ProgramResults], Announcements]:
        """Evaluate what the rows from `base` on affect. Nothing has been announced about rows from `unannounced` on."""
        results: list[ProgramResults] = []
        announcements: list[Announcements] = []
        for plan in self._plan.groups:
            timeline, waiting = self._timelines[plan.key], (clocks.now, self.settled) if plan.withins else None
            if waiting is None:
                runs = timeline.insert(base, self._needed(plan))
            else:
                runs = timeline.insert_waiting(base, self._needed(plan), clocks, plan.withins)
            violations.mark(timeline, self._masks, plan, runs, base, self.horizon)
            if not runs.rows:
                continue
            found = evaluation.evaluate(timeline, self._masks, plan, runs, waiting)
            if not self._batch:
                violated = [result for program in found for result in program.violated]
                announcements += announce(
                    self.store, self._ledger, plan, violated, found[0].rows, unannounced, self.settled
                )
            results += found
        if self._muting or (announcements and self._plan.mutes):
            announcements = with_muted(
                self.store, self._ledger, self._muting, announcements, self.settled, self._plan.waits
            )
        return results, remember(self._ledger, announcements)

    def _failures(self, result: RuleResult, base: int, admitted: Int64Array) -> list[Failure]:
        version = result.compiled.version
        rows = result.rows[[overflow.at for overflow in result.overflows]]
        about = zip(
            result.overflows,
            self.store.array(self.stream.event_id, rows).to_pylist(),
            brought(rows, base, admitted).tolist(),
            strict=True,
        )
        return [
            Failure(version.rule.id, version.version, overflow.measure, event_id, row=row)
            for overflow, event_id, row in about
        ]

    def _evict(self) -> None:
        """Evict events before the horizon: block by block, and all once they are more than half of the events held."""
        for released in self.store.release(self.horizon):
            self._masks.release(released)
            self._ledger.release(released)
        held = self.store.resident
        if held < self._look_again_at and self.store.rows < _MOST_GONE * self._look_again_at:
            return
        needed = self.store.count_since(self.horizon)
        self._look_again_at = max(_EVICTION_FLOOR, 2 * needed)
        if 2 * needed > held and self.store.rows < _MOST_GONE * self._look_again_at:
            return
        if self.store.codes_given > 4 * (needed + self._folding.groups) + _EVICTION_FLOOR:
            self._rebuild()
            return
        self._keep(self.store.since(self.horizon))

    def _keep(self, rows: Int64Array) -> None:
        """Drop all rows but these, which are in order."""
        new_row = np.full(self.store.rows, -1)
        new_row[rows] = np.arange(len(rows))
        self._ledger.renumber(new_row, self.announced_since)
        self.store.keep(rows)
        self._masks.keep(rows)
        for timeline in self._timelines.values():
            timeline.renumber(new_row)

    def _rebuild(self) -> None:
        """Also drop field values that no event has any more, which takes longer: all codes change."""
        needed, next_seq, held = self.snapshot(), self._next_seq, self._folding.held
        self.store = EventStore(self.stream, self.tables)
        self._masks = self._new_masks()
        self._ledger, self._muting = Ledger(self.store), Muting()
        self._folding, self._timelines = Folding(self.store, self._masks), {}
        self.set_rules(self._ruleset, self._group_bys)
        self.restore([needed])
        self._folding.resume(held, self.folded)
        self._next_seq = next_seq
