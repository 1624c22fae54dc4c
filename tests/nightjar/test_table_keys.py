"""How tables stand towards keys, as the pages show it (S22.2)."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from nightjar.contracts.table_changes import change_record
from nightjar.operations.table_keys import Standing, newest_keys, standings
from nightjar.operations.tables import TableLog
from nightjar.rules.rulebook import Record
from nightjar.rules.streams import load_streams
from nightjar.rules.timestamps import from_microseconds
from nightjar.rules.types import INT64

PORTS = {"ports": INT64}
STREAMS = {name: replace(stream, tables=PORTS) for name, stream in load_streams().items()}
# Keys, whether they are set, and from when on (s); None: from the arrival, which is the number of the record.
Said = tuple[list[int], bool, int | None]
SAID = st.tuples(st.lists(st.integers(1, 3), min_size=1, unique=True), st.booleans(), st.none() | st.integers(0, 9))


def record(position: int, said: Said) -> Record:
    """Arrives in the second of its position."""
    keys, is_set, begins = said
    at = None if begins is None else from_microseconds(begins * 1_000_000)
    _, value = change_record("ports", keys, is_set=is_set, valid_from=at, author=f"a{position}", reason="why")
    return Record(position, position * 1_000_000, value)


def slow(said: list[Said], key: int, at: int) -> tuple[bool, list[tuple[int, int, bool]]]:
    """S22.2, word by word: whether a table has a key at a time, and what decides by then (time, position, is set)."""
    changes = [
        (number if begins is None else begins, number, is_set)
        for number, (keys, is_set, begins) in enumerate(said)
        if key in keys
    ]
    deciding = sorted(each for each in changes if each[0] <= at)
    return bool(deciding) and deciding[-1][2], deciding


@given(said=st.lists(SAID, max_size=8), at=st.integers(0, 9), cut=st.integers(0, 8))
def test_a_key_is_there_since_and_until_the_changes_that_make_it_so(said: list[Said], at: int, cut: int) -> None:
    """The same however the records were read; from `began` on, but not before, and up to `ends`, it is as it is now."""
    records = [record(position, each) for position, each in enumerate(said)]
    log = TableLog(STREAMS)
    log.add(records[:cut])
    known = log.add(records[cut:])
    assert log.next == len(said)
    found = standings(known, "ports", INT64, [1, 2, 3], at * 1_000_000)
    for each in found:
        has, deciding = slow(said, int(each.key), at)
        assert each.has == has
        others = [begins for begins, *_ in deciding if slow(said, int(each.key), begins)[0] != has]
        same = [change for change in deciding if not others or change[0] > others[-1]]
        assert (each.began is None) == (not same or not (has or others))
        if each.began is not None:
            first = max(change for change in same if change[0] == same[0][0])
            assert (each.began.valid_from, each.began.author) == (first[0] * 1_000_000, f"a{first[1]}")
        end = next((time for time in range(at + 1, 10) if slow(said, int(each.key), time)[0] != has), None)
        assert (None if each.ends is None else each.ends.valid_from) == (None if end is None else end * 1_000_000)
    held = {each.key for each in found if each.has}
    last = {key: max(number for number, (keys, *_) in enumerate(said) if key in keys) for key in held}
    newest = newest_keys(known, "ports", INT64, at * 1_000_000)
    assert {*newest} == held
    assert [last[key] for key in newest] == sorted(last.values(), reverse=True)


def test_a_key_that_nobody_has_named_is_not_there() -> None:
    known = TableLog(STREAMS).add([])
    assert standings(known, "ports", INT64, [7], 0) == [Standing(7, has=False)]
    assert newest_keys(known, "ports", INT64, 0) == []
