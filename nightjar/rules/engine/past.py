"""Purpose: fold events that an engine has no more, for measures with a resolution that need them (S5.7).

How it works: events are given in any order, as many at a time as fit into memory, with those of them that each fold
lacks. They are folded as an engine folds its own rows (folding.py), and the tables are added up.

What it does not do: know which events an engine has, or which of two events of one id came first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nightjar.rules.engine.columns import columns_of, one_batch, physical
from nightjar.rules.engine.folds import AT_ANY_TIME, Folds, Held, concatenated
from nightjar.rules.engine.plan import IN_TIME, Fold
from nightjar.rules.engine.predicate_bitmaps import Masks
from nightjar.rules.engine.steps import Steps
from nightjar.rules.engine.store import ARRIVAL, LONG_AGO, EventStore
from nightjar.rules.predicates import compile_predicate
from nightjar.rules.streams import Stream
from nightjar.rules.types import Kind

# Tables are added up once there are so many of a group-by and a resolution.
_TABLES = 64
# Plus any 48 bits: before any event.
_BORN = -(1 << 61)


@dataclass(frozen=True)
class Past:
    """What an engine lacked of folds.

    name: of this history, different for each that an engine takes in. spans: by the names of folds, event times (µs)
    from which on and up to which it has all events that were lacking in their steps. folds: tables whose columns are
    named as of folds that were born AT_ANY_TIME. until: event time (µs) before which all events that were lacking are
    in them.
    """

    name: str
    spans: Mapping[str, tuple[int, int]]
    folds: Folds = field(default_factory=dict)
    until: int = LONG_AGO

    def completes(self, fold: str, held: Held) -> bool:
        """Whether it has what a fold of this name lacks."""
        return fold in self.spans and held.complete <= self.spans[fold][1]

    @property
    def born(self) -> int:
        """Instead of the event time from which on a fold has counted: a number that no other history has."""
        return _BORN + int.from_bytes(hashlib.blake2b(self.name.encode(), digest_size=6).digest())


NO_PAST = Past("", {})


class PastFolder:
    """Folds events of the past. most_late: µs, the greatest lateness of an event that counts."""

    def __init__(self, stream: Stream, folds: list[Fold], most_late: int) -> None:
        # measures with a resolution do not ask tables (S22.6)
        self._stream, self._folds, self._most_late = replace(stream, tables={}), folds, most_late
        texts = {text for fold in folds for text in fold.mask.predicates}
        self._predicates = {
            text: compile_predicate("TRUE" if text == IN_TIME else text, stream.fields, where=stream.name)
            for text in texts
        }
        self._tables: list[Folds] = []

    def add(self, events: pa.Table, lacking: Mapping[Fold, npt.NDArray[np.bool_]]) -> None:
        """Fold events (the stream's fields and arrival_time). lacking: which of them each fold lacks; at least one."""
        batch = one_batch(events.select([*self._stream.fields, ARRIVAL]))
        store = EventStore(self._stream)
        masks = Masks(store, self._most_late)
        masks.use(self._predicates, [fold.mask for fold in self._folds])
        store.unseen(batch.column(self._stream.event_id), LONG_AGO)
        columns, rows = columns_of(batch), batch.num_rows
        store.append(columns, physical(columns[ARRIVAL], Kind.TIMESTAMP), np.arange(rows), np.zeros(rows, np.uint8))
        masks.extend()
        for fold, wanted in lacking.items():
            steps = Steps(store, masks, fold.group_by, fold.resolution)
            steps.use({fold: AT_ANY_TIME})
            some = np.flatnonzero(wanted)
            if len(some) and (table := steps.fold(some)) is not None:
                self._tables.append({steps.key: table})
        if len(self._tables) >= _TABLES:
            self._tables = [concatenated(self._tables, LONG_AGO)]

    def folded(self) -> Folds:
        """All that was folded."""
        return concatenated(self._tables, LONG_AGO)
