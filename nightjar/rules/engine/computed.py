"""The measures of conditions at the rows to evaluate: aggregates as kernels answer them, and what is computed of these.

A column of conditions and of computed measures is made when it is first read, and each measure once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from nightjar.rules.engine.measures import Answers, Values
from nightjar.rules.engine.plan import Computed, Conditions, Tally
from nightjar.rules.engine.polars_views import (
    Codes,
    LazyColumns,
    number_array,
    physical_array,
    physical_codes,
    physical_numbers,
)
from nightjar.rules.engine.store import EventStore
from nightjar.rules.engine.strings import Int64Array
from nightjar.rules.event_values import MAX_STRING
from nightjar.rules.functions import Function
from nightjar.rules.predicates import Numbers
from nightjar.rules.types import FieldType, Kind

_NONE: Int64Array = np.empty(0, np.int64)


class Measured(Sequence[Values]):
    """The measures of a program, or of other conditions, by their places in it, at some rows of the store."""

    def __init__(self, store: EventStore, program: Conditions, answers: Answers, rows: Int64Array) -> None:
        self._store, self._program, self._answers, self._rows = store, program, answers, rows
        self._known: dict[int, Values] = {}
        self.columns = LazyColumns(self._column, self._numbers, self._codes)
        # whether a measure has no place in its type anywhere
        self.overflown = answers.overflown or any(
            len(self[program.places[computed]].overflow) for computed in program.computed
        )

    def __len__(self) -> int:
        return len(self._program.places)

    def __getitem__(self, at: int) -> Values:  # type: ignore[override]
        computed = at - len(self._answers)
        if computed < 0:
            return self._answers[at]
        if at not in self._known:
            self._known[at] = self._value(self._program.computed[computed])
        return self._known[at]

    def _value(self, computed: Computed | Tally) -> Values:
        if isinstance(computed, Tally):
            return self._tallied(computed)
        found = _physical(computed.value.of(self.columns, len(self._rows)), computed.kind)
        # where what it reads has no value, this one has none for the same reason
        called = self._program.called
        wrong = [self[called[name][0]].overflow for name in computed.reads if name in called]
        return found._replace(overflow=np.setdiff1d(found.overflow, np.concatenate([_NONE, *wrong])))

    def _tallied(self, tally: Tally) -> Values:
        total = np.zeros(len(self._rows), np.int64)
        for terms in tally.terms.values():
            of_rule = np.zeros(len(self._rows), np.int64)
            for aggregate, score in terms:
                number = self[self._program.places[aggregate]].values.astype(np.int64, copy=False)
                of_rule += number * (score if tally.function is Function.SUM else 1)
            total += of_rule > 0 if tally.function is Function.COUNT_DISTINCT else of_rule
        return Values(total, None, _NONE)

    def _column(self, name: str) -> pa.Array:
        called, store = self._program.called, self._store
        if name not in called:
            return physical_array(store, name, self._rows)
        at, kind = called[name]
        found = self[at]
        if found.texts is not None:
            return found.texts
        if kind.kind is Kind.STRING:
            field = self._program.aggregates[at].field
            assert field is not None
            return store.strings(field, found.codes)
        if kind.kind is Kind.BOOLEAN:
            return pa.array(found.values.astype(np.bool_), mask=None if found.valid is None else found.valid == 0)
        return number_array(found.values, found.valid)

    def _numbers(self, name: str) -> Numbers:
        if name not in self._program.called:
            return physical_numbers(self._store, name, self._rows)
        found = self[self._program.called[name][0]]
        return found.values, None if found.valid is None else found.valid.view(np.bool_)

    def _codes(self, name: str) -> Codes | None:
        if name not in self._program.called:
            return physical_codes(self._store, name, self._rows)
        at, _ = self._program.called[name]
        found = self[at]
        if found.texts is not None:
            return None
        field = self._program.aggregates[at].field
        assert field is not None
        return None if field == self._store.stream.event_id else (found.codes, self._store.texts(field))


def _physical(found: pl.Series, kind: FieldType) -> Values:
    """The values of an expression, as those of an aggregate. A text that is too long for a field is NULL."""
    if kind.kind is Kind.STRING:
        fits = found.str.len_chars() <= MAX_STRING
        texts = found if fits.all() else pl.select(pl.when(fits).then(found)).to_series()
        array = texts.to_arrow(compat_level=pl.CompatLevel.oldest())
        return Values(_NONE, None, _NONE, texts=array.cast(pa.large_string()))
    valid = found.is_not_null().to_numpy().view(np.uint8) if found.null_count() else None
    if kind.kind is Kind.DOUBLE:
        doubles = found.fill_null(0.0).to_numpy() + 0.0  # -0.0 becomes 0.0: they are equal
        return Values(doubles, valid, np.flatnonzero(~np.isfinite(doubles)))
    whole = found.cast(pl.Int64, strict=False)
    beyond = whole.null_count() > found.null_count()
    overflow = (whole.is_null() & found.is_not_null()).to_numpy().nonzero()[0] if beyond else _NONE
    return Values(whole.fill_null(0).to_numpy(), valid, overflow)
