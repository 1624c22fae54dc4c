"""The blocks of a store's rows: which of them have to be searched."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar.rules.engine import memory
from nightjar.rules.engine.blocks import Blocks

ROWS = 4


@given(st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=7), min_size=1, max_size=8), st.integers(-1, 51))
def test_only_blocks_with_a_later_arrival_are_searched(batches: list[list[int]], time: int) -> None:
    """Also where earlier arrivals come after later ones, as from the log of a state."""
    blocks, arrived = Blocks(), list[int]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "BLOCK", ROWS)
        for batch in batches:
            blocks.append(len(arrived), np.array(batch), np.zeros(len(batch), np.int64))
            arrived += batch
        found = blocks.after(time)
    assert blocks.arrived == max(arrived)
    searched = {row // ROWS for rows in found for row in range(rows.start, rows.stop)}
    assert searched == {row // ROWS for row, each in enumerate(arrived) if each > time}


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 50), min_size=1, max_size=7), st.integers(0, 60)), min_size=1, max_size=8
    )
)
def test_a_full_block_is_released_once_all_of_it_has_passed_the_horizon(batches: list[tuple[list[int], int]]) -> None:
    """Whatever was released before it was full."""
    blocks, happened, released, horizon = Blocks(), list[int](), set[int](), -1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "BLOCK", ROWS)
        for batch, target in batches:
            blocks.append(len(happened), np.zeros(len(batch), np.int64), np.array(batch))
            happened += batch
            horizon, full = max(horizon, target), len(happened) // ROWS
            found = blocks.expire(full, horizon)
            expired = {at for at in range(full) if max(happened[at * ROWS : (at + 1) * ROWS]) < horizon}
            assert set(found) == expired - released
            released |= expired
            assert set(blocks.held(full)) == set(range(full)) - released
