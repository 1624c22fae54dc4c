"""Lists of values (S2.4), made at the rows that an alert is about: nothing else reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nightjar.rules.engine.columns import Mask
from nightjar.rules.engine.kernels import listing
from nightjar.rules.engine.store import EventStore
from nightjar.rules.engine.strings import Int32Array, Int64Array
from nightjar.rules.measures import MOST_LISTED


class Listing:
    """The different values of one field over the windows of some rows.

    window: store rows by place, the places of the rows to evaluate, where the window of each begins and ends, and
    whether it leaves out the row itself; marks: those by place, and the word and bit of the rows that count; values:
    facts by place, and which of them is the field; order: which row of the evaluation each row to evaluate is, None
    where they are in the same order.
    """

    def __init__(
        self,
        store: EventStore,
        window: tuple[Int32Array, Int64Array, Int64Array, Int64Array, bool],
        marks: tuple[Mask, int, int],
        values: tuple[npt.NDArray[Any], int],
        order: Int64Array | None,
    ) -> None:
        self._store = store
        self._window, self._marks, self._values, self._order = window, marks, values, order

    def at(self, rows: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
        """(values, kept, others) of these rows of the evaluation.

        values: the physical values that appear first, row after row, kept[i] of row i; others[i]: how many different
        values there are beside them.
        """
        store = self._store
        found, kept, others = listing.listed(
            *self._window, store.late, store.order, *self._marks, *self._values, self._walked(rows), MOST_LISTED
        )
        return found[np.arange(MOST_LISTED) < kept[:, np.newaxis]], kept, others

    def _walked(self, rows: Int64Array) -> Int64Array:
        """Which of the rows to evaluate these are; -1 where their window is one of nothing."""
        if self._order is None:
            return rows
        places = np.full(max(int(rows.max(initial=-1)), int(self._order.max(initial=-1))) + 1, -1)
        places[self._order] = np.arange(len(self._order))
        return places[rows]
