"""The results of an advance of the engine, with the rows of the batch that each part is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

import numpy as np
import pyarrow as pa

from nightjar.rules.engine.columns import Mask, as_declared, columns_of
from nightjar.rules.engine.evaluation import ProgramResults, RuleResult
from nightjar.rules.engine.folds import Folds
from nightjar.rules.engine.store import LATE, LONG_AGO, SEQ
from nightjar.rules.engine.strings import Int64Array

# Instead of a row of the batch, if the batch does not have the event.
NO_ROW = -1


@dataclass(frozen=True)
class Delta:
    """The changes of one advance, for durable state: the events inserted and the announcements made.

    events: the stream's fields, arrival_time, arrival_seq and late; announcements: LEDGER_SCHEMA; folds: what events
    before the horizon have been folded into since the last delta.
    """

    events: pa.Table
    announcements: pa.Table
    folds: Folds = field(default_factory=dict)


@dataclass(frozen=True)
class Position:
    """How far an engine has come: what another one needs beside its deltas to continue."""

    clock: int
    settled: int
    horizon: int
    """`clock`, `settled` and `horizon`: see Engine, µs."""
    held: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By the names of folds, from when on (µs) each has counted without a gap, and from when on its steps count."""
    folded: int = LONG_AGO
    """See Engine, µs."""
    waiting: int = 0
    """How long before `settled` a rule that waits for what follows still announces (S19), µs."""

    @property
    def announced_since(self) -> int:
        """Event time (µs) before which nothing is announced any more."""
        return self.settled - self.waiting

    @property
    def since(self) -> int:
        """Event time (µs) before which neither events nor steps are needed."""
        return min([self.horizon, *(since for _, since in self.held.values())])


@dataclass(frozen=True)
class Failure:
    """A measure whose exact value is out of the range of its type at an event, which is therefore not a violation."""

    rule_id: str
    rule_version: int
    measure: str
    event_id: str
    why: str = ""
    """Why the version as a whole cannot be evaluated, if so; measure and event_id are empty then."""
    row: int = NO_ROW
    """Of the event in the batch; NO_ROW if it is from an earlier batch, or there is no event."""


@dataclass(frozen=True)
class InputRows:
    """Rows of the batch as given. Arrays of int64.

    admitted: of the events inserted, in the order of the store's rows; late, duplicates: of the late events, and of
    those dropped because their id was known; alerts: of each alert's event, NO_ROW if it is from an earlier batch.
    """

    admitted: Int64Array
    late: Int64Array
    duplicates: Int64Array
    alerts: Int64Array


@dataclass(frozen=True)
class Events:
    """The events of a batch, in the order of their arrival."""

    batch: pa.RecordBatch
    """All of them."""
    late: Int64Array
    """The indices of the late ones."""
    inserted: Mapping[str, pa.Array]
    """The columns of those inserted, by name."""
    seq: Int64Array
    """Their arrival_seq, int64."""
    came_late: Mask
    """Which of these are late, uint8."""


@dataclass(frozen=True)
class Advance:
    """The results of a batch.

    Tables that not every host reads are created on request: for a small batch they are nearly a tenth of the work.
    """

    alerts: pa.Table
    """ALERT_SCHEMA, in the order of announcement."""
    rows: InputRows
    """The rows of the batch that the tables are about."""
    failures: list[Failure]
    results: list[ProgramResults] = field(repr=False)
    announcements: pa.Table = field(repr=False)
    folds: Folds = field(repr=False)
    events: Events = field(repr=False)

    @cached_property
    def late(self) -> pa.Table:
        """The late events, with all their columns."""
        return as_declared(columns_of(self.events.batch.take(pa.array(self.events.late))))

    @cached_property
    def delta(self) -> Delta:
        """What has changed."""
        late = pa.array(self.events.came_late.view(np.bool_))
        inserted = {**self.events.inserted, SEQ: pa.array(self.events.seq), LATE: late}
        return Delta(as_declared(inserted), self.announcements, self.folds)

    @property
    def duplicates(self) -> int:
        """How many events were dropped because their id was known."""
        return len(self.rows.duplicates)

    @property
    def rule_results(self) -> list[RuleResult]:
        """Every rule version at the rows that were evaluated."""
        return [*chain.from_iterable(self.results)]


def brought(rows: Int64Array, base: int, admitted: Int64Array) -> Int64Array:
    """The batch's rows of the events of store rows; NO_ROW for those below `base`, which are from earlier batches.

    admitted: the batch's rows of the events that the store has from `base` on.
    """
    if not len(rows):
        return rows
    found = np.full(len(rows), NO_ROW)
    new = rows >= base
    found[new] = admitted[rows[new] - base]
    return found
