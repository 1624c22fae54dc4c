"""The values of aggregates at the rows to evaluate: a call of a kernel for each window, which answers all about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nightjar.rules import calendars
from nightjar.rules.engine import carried
from nightjar.rules.engine.columns import Mask
from nightjar.rules.engine.kernels import answers, episodes, ranked, sequences, sessions, steps, windows
from nightjar.rules.engine.listing import Listing
from nightjar.rules.engine.plan import Aggregate, Fold, MaskKey, Window
from nightjar.rules.engine.predicate_bitmaps import Masks
from nightjar.rules.engine.strings import Int32Array, Int64Array
from nightjar.rules.engine.timeline import Runs, Timeline
from nightjar.rules.measures import EPISODE_REACH
from nightjar.rules.types import DOUBLE, INT64, Kind

# Of a timeline's arena: marks, narrow values, wide values.
Facts = tuple[Mask, Int32Array, Int64Array]
_NONE: Int64Array = np.empty(0, np.int64)
_NO_FLAGS: Mask = np.empty(0, np.uint8)
_NOTHING_BEFORE: Int64Array = np.empty((1, 0, steps.COLUMNS), np.int64)


class Values(NamedTuple):
    """One aggregate at the rows to evaluate: physical values, and where they are not NULL (uint8; None: everywhere).

    `overflow` holds indices into the rows where the exact value has no place in the type (usually none). `listing`: of
    a list of values, what makes it at the rows that an alert is about; it has no physical values. `texts`: of a text
    that is computed (large_string), which has none either.
    """

    values: npt.NDArray[np.generic]
    valid: Mask | None
    overflow: Int64Array
    listing: Listing | None = None
    texts: pa.Array | None = None

    @property
    def codes(self) -> Int64Array:
        """The values of a measure of strings, -1 for NULL."""
        return np.where(self.valid != 0, self.values, -1)


class _Question(NamedTuple):
    """What kernels.answers is asked about one window, and which of the aggregates its answers are, row by row.

    specification: what kernels.answers takes, whose rows of answers are numbered as the aggregates are; whole: the
    window with every row between its ends; listed: the aggregates that list values, which no kernel answers
    ahead; sequences: those that are chains, which have a kernel of their own; folds: of a window with a resolution, the
    steps that each row of the specification needs; long: those of the windows that have many rows; kernel: that of
    kernels.answers or kernels.ranked.
    """

    window: Window
    whole: Window
    aggregates: list[int]
    specification: Int64Array
    scales: npt.NDArray[np.float64]
    listed: list[int]
    sequences: list[int]
    folds: list[Fold]
    long: carried.LongWindows
    kernel: Any


class Asked(NamedTuple):
    """Aggregates, and the questions that lead to them. last: by its `whole` the last one about each window; doubles:
    which fields are doubles."""

    aggregates: tuple[Aggregate, ...]
    questions: list[_Question]
    last: dict[Window, _Question]
    doubles: frozenset[str]


class Answers(Sequence[Values]):
    """The aggregates at the rows to evaluate, in their order; each becomes Values when it is asked for."""

    def __init__(
        self,
        asked: Asked,
        tables: dict[int, tuple[Int64Array, Mask]],
        listings: dict[int, Listing],
        *,
        overflown: bool,
    ) -> None:
        self.overflown = overflown  # whether any answer has no place in its type
        self._asked, self._tables = asked, tables
        self._known = {at: Values(_NONE, None, _NONE, listing) for at, listing in listings.items()}

    def __len__(self) -> int:
        return len(self._asked.aggregates)

    def __getitem__(self, at: int) -> Values:  # type: ignore[override]
        if at not in self._known:
            self._known[at] = self._values(self._asked.aggregates[at], *self._tables[at])
        return self._known[at]

    def _values(self, aggregate: Aggregate, found: Int64Array, flags: Mask) -> Values:
        spec = aggregate.function.spec
        if spec.counts:
            return Values(found, None, _NONE)
        of_doubles = aggregate.field in self._asked.doubles
        values = found.view(np.float64) if spec.result(DOUBLE if of_doubles else INT64) == DOUBLE else found
        overflow = _NONE
        if self.overflown and of_doubles:
            overflow = np.flatnonzero(~np.isfinite(values))
        elif self.overflown and spec.empty is not None:
            overflow = flags.nonzero()[0]
        return Values(values, flags if spec.empty is None else None, overflow)


class _Walk:
    """Rows in which windows are stretches (see kernels.windows), and their facts: an arena, or a copy of part of it.

    order: which row of the evaluation each row to evaluate is, None where they are in the same order.
    """

    def __init__(
        self, first: Int64Array, rows: Int32Array, facts: Facts, at: Int64Array, order: Int64Array | None
    ) -> None:
        self.first, self.rows, self.facts, self.at, self.order = first, rows, facts, at, order

    def of(self, runs: npt.NDArray[np.bool_]) -> _Walk:
        """A walk for some of the runs: the rows of those where `runs` is true, which is equal for all rows of a run."""
        sizes = np.add.reduceat(runs, self.first[:-1], dtype=np.int64)
        first = np.append(0, np.cumsum(sizes[sizes > 0]))
        return _Walk(first, self.rows, self.facts, self.at[runs], None)

    def placed(self, results: npt.NDArray[Any], rows: int) -> npt.NDArray[Any]:
        """One result per row, in the order of the evaluation; rows that are not in the walk have a window of
        nothing."""
        if self.order is None:
            return results
        placed = np.zeros(rows, results.dtype)
        placed[self.order] = results
        return placed


class Stretches(NamedTuple):
    """The windows of the rows to evaluate of a walk: where in it each begins and ends (see kernels.windows)."""

    walk: _Walk
    low: Int64Array
    end: Int64Array


class _Walks:
    """The windows of the rows of some runs, with everything shared that can be, as long as it may be asked for."""

    def __init__(self, timeline: Timeline, masks: Masks, runs: Runs, after: Int64Array | None) -> None:
        self._timeline, self._masks, self._runs, self._after = timeline, masks, runs, after
        facts = timeline.marks.all, timeline.narrow.all, timeline.wide.all
        self._walk = _Walk(runs.first, timeline.rows, facts, runs.at, None)
        self._found: dict[Window, Stretches] = {}
        self._splits: dict[tuple[Window, tuple[str, ...]], Stretches] = {}

    def _stretches(self, window: Window) -> Stretches:
        if window not in self._found:
            end = self._walk.at if not window.delay else self._delayed(window)
            low = self._slid(window, end) if window.opens is None else self._opened(window, window.opens)
            if self._after is not None:
                low = np.maximum(low, self._after)
            self._found[window] = Stretches(self._walk, np.minimum(low, end) if window.delay else low, end)
        return self._found[window]

    def _delayed(self, window: Window) -> Int64Array:
        """Where the window of each row ends, some time before it."""
        walk = self._walk
        end: Int64Array = windows.upper_bounds(
            walk.first, self._runs.start, self._timeline.times, walk.at, window.delay
        )
        return end

    def _slid(self, window: Window, end: Int64Array) -> Int64Array:
        """Where the sliding window of each row begins."""
        walk, timeline, store = self._walk, self._timeline, self._timeline.store
        begins = max(self._runs.horizon, self._runs.folded) if window.resolution else self._runs.horizon
        place = walk.first, self._runs.start, timeline.times, walk.at
        low: Int64Array
        if window.calendar is None:
            low = windows.lower_bounds(*place, window.over + window.delay, window.resolution, begins)
        else:
            bounds = calendars.begins(timeline.times[walk.at], *window.calendar)
            low = windows.first_places(*place, np.maximum(bounds, begins))
        session = self._session(window.session, low) if window.session else None
        if window.since is not None:
            word, bit = self._masks[window.since]
            if window.delay:
                low = np.minimum(low, end)
            windows.after_reset(
                walk.first,
                walk.rows,
                walk.at,
                end,
                timeline.marks.all,
                timeline.marks[word],
                bit,
                store.late,
                store.order,
                low,
            )
        return low if session is None else np.maximum(low, session)

    def _session(self, gap: int, low: Int64Array) -> Int64Array:
        """Where the session of each row begins. low: where its window would."""
        walk, store = self._walk, self._timeline.store
        begins: Int64Array = sessions.begins(
            walk.first, walk.rows, self._timeline.times, walk.at, low, gap, store.late, store.last_late, store.order
        )
        return begins

    def _opened(self, window: Window, opens: MaskKey) -> Int64Array:
        """Where the episode of each row begins."""
        walk, timeline, store = self._walk, self._timeline, self._timeline.store
        marks = []
        for key in (opens, window.until):
            word, bit = (0, -1) if key is None else self._masks[key]
            marks += [0 if key is None else timeline.marks[word], bit]
        low: Int64Array = episodes.begins(
            walk.first,
            self._runs.start,
            walk.rows,
            timeline.times,
            walk.at,
            window.over,
            EPISODE_REACH * window.over,
            self._runs.horizon,
            timeline.marks.all,
            *marks,
            store.late,
            store.last_late,
            store.order,
        )
        return low

    def drop(self, whole: Window) -> None:
        """Drop the bounds of a window and what was computed from them, so that the next ones reuse their memory."""
        self._found.pop(whole, None)
        for key in [key for key in self._splits if key[0] == whole]:
            del self._splits[key]

    def of(self, window: Window, whole: Window) -> Stretches:
        """A walk for the window, and the window of each row to evaluate in it.

        whole: the same window with every row between its ends.
        """
        found, per = self._stretches(whole), window.per
        if not per:
            return found
        walk, low, key = found.walk, found.low, (whole, per)
        if key not in self._splits:
            store = self._timeline.store
            first, origin, at, low, order = windows.split_by_value(
                walk.first, walk.rows, walk.at, low, store.codes(per), store.scratch(per)
            )
            marks, narrow, wide = (facts[origin] for facts in walk.facts)
            end = windows.ends_of_value(origin, at, low, found.end[order]) if window.delay else at
            self._splits[key] = Stretches(_Walk(first, walk.rows[origin], (marks, narrow, wide), at, order), low, end)
        return self._splits[key]


def _asked(timeline: Timeline, masks: Masks, aggregates: tuple[Aggregate, ...]) -> Asked:
    fields = timeline.store.stream.fields
    of_window: dict[Window, list[int]] = {}
    for at, aggregate in enumerate(aggregates):
        of_window.setdefault(aggregate.window, []).append(at)
    questions = []
    for window, of_it in of_window.items():
        listed = [at for at in of_it if aggregates[at].function.spec.is_list]
        chained = [at for at in of_it if aggregates[at].steps]
        computed = [at for at in of_it if at not in listed and at not in chained]
        chosen = [at for at in computed if aggregates[at].function.spec.is_ranked]
        others = [at for at in computed if at not in chosen]
        if listed or chained or others:
            questions.append(_question(timeline, masks, aggregates, window, others, listed, chained, is_ranked=False))
        if chosen:
            questions.append(_question(timeline, masks, aggregates, window, chosen, [], [], is_ranked=True))
    doubles = frozenset(name for name, kind in fields.items() if kind.kind is Kind.DOUBLE)
    return Asked(aggregates, questions, {question.whole: question for question in questions}, doubles)


def _question(
    timeline: Timeline,
    masks: Masks,
    aggregates: tuple[Aggregate, ...],
    window: Window,
    wanted: list[int],
    listed: list[int],
    chained: list[int],
    *,
    is_ranked: bool,
) -> _Question:
    fields, nowhere = timeline.store.stream.fields, len(aggregates)
    specification: dict[Any, list[int]] = {}
    scales: list[float] = []
    folds: list[Fold] = []
    for row in wanted:
        aggregate = aggregates[row]
        spec, field = aggregate.function.spec, aggregate.field
        computation = spec.computation
        kind, column, scale = answers.NARROW, -1, 1.0
        if field is not None and not spec.takes_rows:
            scale = 10.0 ** fields[field].scale
            is_wide = field in timeline.wide
            kind = answers.WIDE if is_wide else answers.NARROW
            column = (timeline.wide if is_wide else timeline.narrow)[field]
            if fields[field].kind is Kind.DOUBLE and spec.of_doubles is not None:
                kind, computation = answers.DOUBLE, spec.of_doubles
        assert computation is not None
        word, bit = masks[aggregate.mask]
        key: Any = row
        if computation.place is not None:
            # a sum may count steps that a spread of the same does not, where a rule came later
            key = field, aggregate.mask, computation.code if window.resolution else 0
        if key not in specification:
            folds += [Fold.of(timeline.group_by, aggregate)] if window.resolution else []
            specification[key] = [
                computation.code,
                timeline.marks[word],
                bit,
                kind,
                column,
                *[nowhere] * 3,
                aggregate.share,
            ]
            scales.append(scale)
        specification[key][0] = max(specification[key][0], computation.code)
        specification[key][5 + (computation.place or 0)] = row
    asked = np.array([*specification.values()], np.int64).reshape(-1, 9)
    whole = window._replace(per=(), excluding_current=False)
    scaled = np.array(scales)
    long = carried.LongWindows(asked, scaled, excluding=window.excluding_current, are_ranked=is_ranked)
    kernel = ranked.answers if is_ranked else answers.answers
    return _Question(window, whole, wanted, asked, scaled, listed, chained, folds, long, kernel)


def answer(
    timeline: Timeline,
    masks: Masks,
    runs: Runs,
    aggregates: tuple[Aggregate, ...],
    after: Int64Array | None = None,
) -> Answers:
    """Every one of the aggregates at every row of the runs. after: of each row the place from which others count."""
    asked: Asked | None = timeline.asked.get(id(aggregates))
    if asked is None or asked.aggregates is not aggregates:
        asked = timeline.asked[id(aggregates)] = _asked(timeline, masks, aggregates)
    walks = _Walks(timeline, masks, runs, after)
    # each aggregate has its row in these, whoever answers it; the last one takes the answers that none needs
    found, flags = _room(len(aggregates), runs.rows)
    tables: dict[int, tuple[Int64Array, Mask]] = {}
    listings: dict[int, Listing] = {}
    overflown = 0
    for question in asked.questions:
        stretches = walks.of(question.window, question.whole)
        walk = stretches.walk
        if asked.last[question.whole] is question:
            walks.drop(question.whole)
        for at in question.listed:
            listings[at] = _listing(timeline, masks, aggregates[at], stretches)
        for at in question.sequences:
            tables[at] = _chains(timeline, masks, runs, aggregates[at], stretches), _NO_FLAGS
        if not question.aggregates:
            continue
        if walk.order is not None:
            others = _room(len(aggregates), len(walk.at))
            overflown += _answers(timeline, runs, question, stretches, *others)
            for at in question.aggregates:
                found[at], flags[at] = (walk.placed(table[at], runs.rows) for table in others)
        elif runs.longest >= carried.LONG and runs.rows <= carried.MOST_ROWS and not question.folds:
            overflown += _answers_of_long(timeline, runs, question, stretches, found, flags)
        else:
            overflown += _answers(timeline, runs, question, stretches, found, flags)
        tables |= {at: (found[at], flags[at]) for at in question.aggregates}
    return Answers(asked, tables, listings, overflown=overflown > 0)


def _room(aggregates: int, rows: int) -> tuple[Int64Array, Mask]:
    """For answers and flags: of rows of which nothing is written none is taken from memory."""
    return np.empty((aggregates + 1, rows), np.int64), np.empty((aggregates + 1, rows), np.uint8)


def _answers(
    timeline: Timeline, runs: Runs, question: _Question, stretches: Stretches, found: Int64Array, flags: Mask
) -> int:
    """Write the answers at every row of the walk and their flags; returns how many of them exceed their types."""
    store, walk = timeline.store, stretches.walk
    beyond: int = question.kernel(
        walk.first,
        walk.rows,
        walk.at,
        stretches.low,
        stretches.end,
        question.window.excluding_current,
        store.late,
        store.last_late,
        store.order,
        *walk.facts,
        question.specification,
        question.scales,
        _before(timeline, runs, question.window, question.folds),
        found,
        flags,
    )
    return beyond


def _answers_of_long(
    timeline: Timeline, runs: Runs, question: _Question, stretches: Stretches, found: Int64Array, flags: Mask
) -> int:
    """The same where some windows may be long, of a walk of all rows of the runs."""
    walk, low, end = stretches
    beyond, left = question.long.answer(timeline, runs, low, end, found, flags)
    if not left.any():
        return beyond
    if left.all():
        return beyond + _answers(timeline, runs, question, stretches, found, flags)
    rest = Stretches(walk.of(left), low[left], end[left])
    others = _room(len(found) - 1, len(rest.walk.at))
    beyond += _answers(timeline, runs, question, rest, *others)
    for at in question.aggregates:
        found[at, left], flags[at, left] = (table[at] for table in others)
    return beyond


def _before(timeline: Timeline, runs: Runs, window: Window, folds: list[Fold]) -> Int64Array:
    """What the windows of the rows hold of steps: int64 (folds, rows, 8), see kernels.steps."""
    held = timeline.steps.get(window.resolution)
    if held is None or not folds:
        return _NOTHING_BEFORE
    groups = timeline.store.codes(timeline.group_by)[timeline.rows[runs.at[runs.first[:-1]]]]
    return held.before(runs.first, groups, timeline.times, runs.at, window.over, folds)


def _chains(timeline: Timeline, masks: Masks, runs: Runs, aggregate: Aggregate, stretches: Stretches) -> Int64Array:
    """How many rows begin a chain that ends with each row."""
    store, marks = timeline.store, [masks[key] for key in aggregate.steps]
    walk, low, _ = stretches
    steps = np.array([(timeline.marks[mark.word], mark.bit) for mark in marks], np.int64)
    found = np.empty(len(walk.at), np.int64)
    sequences.chains(
        walk.first, walk.rows, walk.at, low, store.late, store.last_late, store.order, walk.facts[0], steps, found
    )
    placed: Int64Array = walk.placed(found, runs.rows)
    return placed


def _listing(timeline: Timeline, masks: Masks, aggregate: Aggregate, stretches: Stretches) -> Listing:
    field = aggregate.field
    assert field is not None
    walk, low, end = stretches
    marks, narrow, wide = walk.facts
    word, bit = masks[aggregate.mask]
    values = (wide, timeline.wide[field]) if field in timeline.wide else (narrow, timeline.narrow[field])
    window = walk.rows, walk.at, low, end, aggregate.window.excluding_current
    return Listing(timeline.store, window, (marks, timeline.marks[word], bit), values, walk.order)
