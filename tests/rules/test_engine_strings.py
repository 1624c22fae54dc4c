"""The table of strings gives back what it was given, in the order of S1.1, however it keeps it."""

import uuid

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from nightjar.rules.engine.kernels import texts
from nightjar.rules.engine.strings import StringTable

HEX = st.text("0123456789abcdef", max_size=40)
NEARLY = st.builds(
    lambda digits, other: digits + other, HEX, st.sampled_from(["", "-", "A", "g", "\x00", "é", "\U0010ffff"])
)
UUIDS = st.uuids().map(str)
NEARLY_UUIDS = st.builds(
    lambda text, at, other: text[:at] + other + text[at + 1 :], UUIDS, st.integers(0, 35), st.sampled_from("-0aA")
)
STRINGS = st.lists(st.one_of(st.text(max_size=40), HEX, NEARLY, UUIDS, NEARLY_UUIDS), max_size=30)


@njit
def before(heap: np.ndarray, i: int, i_end: int, j: int, j_end: int) -> bool:
    """The kernels' order of two ids."""
    return texts.before(heap, i, i_end, j, j_end)


@given(STRINGS, STRINGS)
def test_strings_are_kept_whole_and_known_again(first: list[str], second: list[str]) -> None:
    """A code is a place in the order of first sight."""
    table, order = StringTable(), list(dict.fromkeys([*first, *second]))
    codes = [code for part in (first, second) for code in table.intern(pa.array(part, pa.string())).tolist()]
    assert codes == [order.index(text) for text in (*first, *second)]
    assert table.strings(np.arange(len(order))).to_pylist() == order
    assert table.find(pa.array(second, pa.string())).tolist() == [order.index(text) for text in second]


@given(st.lists(st.one_of(UUIDS, HEX, NEARLY), min_size=2, max_size=2, unique=True))
def test_the_order_of_ids_is_that_of_their_hashes(pair: list[str]) -> None:
    """Of the texts, not of what the heap has of them."""
    table = StringTable()
    table.intern(pa.array(pair, pa.string()))
    hashes = [texts.hash_bytes(np.frombuffer(text.encode(), np.uint8), 0, len(text.encode())) for text in pair]
    ends = table.ends[:3].tolist()
    assert before(table.heap, ends[0], ends[1], ends[1], ends[2]) == (hashes[0] < hashes[1])


@given(STRINGS, st.data())
def test_kept_strings_keep_their_codes_and_dropped_ones_get_new_codes(strings: list[str], data: st.DataObject) -> None:
    """After any of them are removed from the table, and any dropped."""
    table, known = StringTable(), list(dict.fromkeys(strings))
    table.intern(pa.array(known, pa.string()))
    unindexed = sorted(data.draw(st.sets(st.sampled_from(range(len(known))))) if known else [])
    table.unindex(np.array(unindexed, np.int64))
    kept = sorted(data.draw(st.sets(st.sampled_from(range(len(known))))) if known else [])
    table.keep(np.array(kept, np.int64))
    assert table.strings(np.arange(len(kept))).to_pylist() == [known[at] for at in kept]
    expected = [-1 if at in unindexed or at not in kept else kept.index(at) for at in range(len(known))]
    assert table.find(pa.array(known, pa.string())).tolist() == expected


def test_ids_take_little_more_than_half_their_digits() -> None:
    """A UUID 17 bytes of 36."""
    table = StringTable()
    table.intern(pa.array([str(uuid.UUID(int=at)) for at in range(100)]))
    assert table.ends[100] == 1700
