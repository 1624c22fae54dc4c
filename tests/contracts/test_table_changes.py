"""Records that change tables (S22.1): written as they are read, and anything else has no effect."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import write_deltalake

from nightjar.contracts.table_changes import MAX_KEYS, ChangeReader, Declined, change_record, decision_record
from nightjar.lake.table_rows import LakeTables
from nightjar.lake.tables import TABLES
from nightjar.rules.engine.table_rows import Change
from nightjar.rules.rulebook import Record
from nightjar.rules.tables import TableType
from nightjar.rules.types import BOOLEAN, DOUBLE, INT64, STRING, TIMESTAMP, Kind, decimal

FIELDS = {"country": STRING, "most": decimal(6, 2), "risk": INT64, "share": DOUBLE, "seen": TIMESTAMP, "known": BOOLEAN}
DECLARED = {"blocked": STRING, "ports": INT64, "cards": TableType(Kind.STRING, values=tuple(FIELDS.items()))}
GOOD = {"table": "blocked", "set": ["x"]}
CARDS = {"table": "cards", "set": ["x"]}


def test_a_record_is_read_as_it_was_written() -> None:
    at = datetime(2026, 1, 5, tzinfo=UTC)
    _, value = change_record("ports", [1, -5], is_set=False, valid_from=at, author="ann", reason="é")
    (found,) = ChangeReader(DECLARED).read([Record(7, 9, value)])
    assert found == Change(
        7, 9, "ports", [1, -5], is_set=False, valid_from=1_767_571_200_000_000, author="ann", reason="é"
    )


def test_values_are_read_in_one_form() -> None:
    """However a record has them; null is as if it were not there."""
    said = (
        b'{"table": "cards", "set": ["a", "b", "c"], "values": [{"most": 9.50, "share": 1, "known": false}, '
        b'{"most": "-7", "seen": "2026-01-05T13:00:00+01:00", "risk": null}, {"share": 0.25, "most": 1e3}]}'
    )
    (found,) = ChangeReader(DECLARED).read([Record(0, 9, said)])
    assert found.values == [
        {"most": "9.50", "share": 1.0, "known": False},
        {"most": "-7.00", "seen": "2026-01-05T12:00:00.000000Z"},
        {"most": "1000.00", "share": 0.25},
    ]
    _, again = change_record("cards", found.keys, is_set=True, values=found.values)
    (same,) = ChangeReader(DECLARED).read([Record(0, 9, again)])
    assert same == found


def test_without_a_time_it_is_valid_from_its_arrival() -> None:
    (found,) = ChangeReader(DECLARED).read([Record(0, 9, json.dumps(GOOD).encode())])
    assert found.valid_from == 9


@pytest.mark.parametrize(
    "written",
    [
        b"",
        b"\xff",
        b"[" * 100_000,
        b"null",
        b'{"table": "blocked", "set": ["\\ud800"]}',
        {},
        [],
        {**GOOD, "table": "other"},
        {**GOOD, "table": ["blocked"]},
        {**GOOD, "table": None},
        {**GOOD, "remove": ["x"]},
        {"table": "blocked"},
        {**GOOD, "more": 1},
        {**GOOD, "set": "x"},
        {**GOOD, "set": []},
        {**GOOD, "set": [""]},
        {**GOOD, "set": ["x", 1]},
        {**GOOD, "set": ["x" * 257]},
        {**GOOD, "set": ["x"] * (MAX_KEYS + 1)},
        {"table": "ports", "set": [True]},
        {"table": "ports", "set": [1.0]},
        {"table": "ports", "set": [1 << 63]},
        {"table": "ports", "set": ["1"]},
        {**GOOD, "valid_from": "2026-01-05"},
        {**GOOD, "valid_from": 1},
        {**GOOD, "valid_from": None},
        {**GOOD, "author": 1},
        {**GOOD, "reason": "x" * 501},
        {**GOOD, "values": [{"country": "DE"}]},
        {"table": "cards", "remove": ["x"], "values": [{"country": "DE"}]},
        {**CARDS, "values": {"country": "DE"}},
        {**CARDS, "values": []},
        {**CARDS, "values": None},
        {**CARDS, "values": [{}, {}]},
        {**CARDS, "values": ["DE"]},
        {**CARDS, "values": [{"town": "Rome"}]},
        {**CARDS, "values": [{"country": 1}]},
        {**CARDS, "values": [{"country": "x" * 257}]},
        b'{"table": "cards", "set": ["x"], "values": [{"country": "\\ud800"}]}',
        {**CARDS, "values": [{"most": "12345.00"}]},
        {**CARDS, "values": [{"most": "1.001"}]},
        {**CARDS, "values": [{"most": "1_0"}]},
        {**CARDS, "values": [{"most": True}]},
        {**CARDS, "values": [{"most": "NaN"}]},
        b'{"table": "cards", "set": ["x"], "values": [{"most": 1e999999999}]}',
        b'{"table": "cards", "set": ["x"], "values": [{"most": 1e-999999999}]}',
        b'{"table": "cards", "set": ["x"], "values": [{"most": 1e9999999999999999999999}]}',
        b'{"table": "cards", "set": ["x"], "values": [{"most": 1.' + b"0" * 100_000 + b"}]}",
        {**CARDS, "values": [{"risk": 1.0}]},
        {**CARDS, "values": [{"risk": 1 << 63}]},
        {**CARDS, "values": [{"risk": "1"}]},
        {**CARDS, "values": [{"share": "1"}]},
        {**CARDS, "values": [{"share": 10**400}]},
        b'{"table": "cards", "set": ["x"], "values": [{"share": 1e999}]}',
        b'{"table": "cards", "set": ["x"], "values": [{"share": NaN}]}',
        {**CARDS, "values": [{"known": 1}]},
        {**CARDS, "values": [{"seen": "2026-01-05"}]},
        {**CARDS, "values": [{"seen": 1}]},
    ],
)
def test_anything_else_has_no_effect(written: Any) -> None:
    value = written if isinstance(written, bytes) else json.dumps(written).encode()
    reader = ChangeReader(DECLARED)
    assert [*reader.read([Record(0, 0, value)])] == []
    assert reader.unusable == 1


APPROVED = {"blocked": TableType(Kind.STRING, approved_from=100)}
WAITS = {**GOOD, "id": "one", "author": "ann"}
APPROVAL = {"table": "blocked", "approve": ["one"], "author": "bob"}
DECLINE = {"table": "blocked", "decline": ["one"], "author": "eve", "reason": "a typing error"}


def effects(*records: dict[str, Any], first: int = 100) -> list[tuple[int, int, str, str]]:
    """Position, valid_from, author and approver of the changes of records that arrive one after the other."""
    reader, found = ChangeReader(APPROVED), list[Change]()
    for place, record in enumerate(records):  # each by itself, as they come
        found += reader.read([Record(place, first + place, json.dumps(record).encode())])
    return [(each.position, each.valid_from, each.author, each.approver) for each in found]


def test_a_change_takes_effect_with_the_approval_of_somebody_else() -> None:
    """S22.8: in its order, and from its arrival unless it states a time."""
    assert effects(WAITS, APPROVAL) == [(1, 101, "ann", "bob")]
    assert effects({**WAITS, "valid_from": "1970-01-01T00:00:00Z"}, APPROVAL) == [(1, 0, "ann", "bob")]
    assert effects(WAITS, {**WAITS, "id": "two"}, {**APPROVAL, "approve": ["two", "one"]})[0][0] == 2
    _, value = decision_record("blocked", ["one"], approves=True, author="bob", reason="seen")
    assert effects(WAITS, json.loads(value)) == [(1, 101, "ann", "bob")]


@pytest.mark.parametrize(
    "records",
    [
        [WAITS],
        [APPROVAL, WAITS],
        [WAITS, {**APPROVAL, "author": "ann"}],
        [WAITS, {**APPROVAL, "author": " Ann "}],
        [WAITS, {**APPROVAL, "author": ""}],
        [WAITS, {**APPROVAL, "author": " "}],
        [WAITS, {**APPROVAL, "reason": 1}],
        [WAITS, {**APPROVAL, "reason": "x" * 501}],
        [WAITS, {**APPROVAL, "decline": ["one"]}],
        [WAITS, DECLINE, APPROVAL],
        [WAITS, {**DECLINE, "author": "ann"}, APPROVAL],
        [WAITS, {**APPROVAL, "table": "ports"}],
        [WAITS, {**APPROVAL, "approve": ["two"]}],
        [WAITS, {**APPROVAL, "approve": "one"}],
        [WAITS, {**APPROVAL, "approve": [["one"]]}],
        [WAITS, {**APPROVAL, "more": 1}],
        [{**WAITS, "author": ""}, APPROVAL],
        [{**WAITS, "id": ""}, {**APPROVAL, "approve": [""]}],
        [{**WAITS, "id": "x" * 65}, {**APPROVAL, "approve": ["x" * 65]}],
    ],
)
def test_what_nobody_else_approves_has_no_effect(records: list[dict[str, Any]]) -> None:
    assert effects(*records) == []


def test_an_id_is_that_of_the_first_change_that_waits_under_it() -> None:
    assert effects(WAITS, {**WAITS, "author": "eve"}, APPROVAL, APPROVAL) == [(2, 102, "ann", "bob")]


def test_what_was_declined_can_be_ordered_again() -> None:
    assert effects(WAITS, DECLINE, WAITS, APPROVAL) == [(3, 103, "ann", "bob")]


@pytest.mark.parametrize("wrong", [{"author": ""}, {"author": None}, {"decline": ["two"]}, {"more": 1}, {"reason": 1}])
def test_what_is_no_decline_has_no_effect(wrong: dict[str, Any]) -> None:
    assert effects(WAITS, {**DECLINE, **wrong}, APPROVAL) == [(2, 102, "ann", "bob")]


def test_who_declined_a_change_is_told() -> None:
    told: list[Declined] = []
    reader = ChangeReader(APPROVED, told.append)
    records = [
        Record(7 + place, 100, json.dumps(each).encode()) for place, each in enumerate((WAITS, DECLINE, DECLINE))
    ]
    assert [*reader.read(records)] == []
    assert [(each.change.id, each.position, each.author, each.reason) for each in told] == [
        ("one", 8, "eve", "a typing error")
    ]
    assert (reader.waiting, reader.unusable) == ({}, 1)


def test_changes_before_approvals_were_asked_for_need_none() -> None:
    assert effects(GOOD, first=99) == [(0, 99, "", "")]


@pytest.mark.parametrize(("bound", "most"), [("MAX_WAITING", 1), ("MAX_WAITING_TEXT", 1)])
def test_so_much_waits_and_no_more(monkeypatch: pytest.MonkeyPatch, bound: str, most: int) -> None:
    """Once one of them is approved there is room again."""
    monkeypatch.setattr(f"nightjar.contracts.table_changes.{bound}", most)
    two, both = {**WAITS, "id": "two"}, {**APPROVAL, "approve": ["one", "two"]}
    assert effects(WAITS, two, both) == [(2, 102, "ann", "bob")]
    assert effects(WAITS, APPROVAL, two, both) == [(1, 101, "ann", "bob"), (3, 103, "ann", "bob")]


def test_the_lake_has_the_rows_of_its_version(tmp_path: Path) -> None:
    """A run that is repeated sees the rows that it saw."""
    assert LakeTables.newest(tmp_path, {}) is None
    nothing = LakeTables.newest(tmp_path, DECLARED)
    assert nothing is not None
    assert nothing.rows().keys_at("blocked", 10).to_pylist() == []
    for offset, record in enumerate([GOOD, {"table": "blocked", "remove": ["x"]}]):
        place = {"partition": 0, "offset": offset, "arrival_time": datetime.fromtimestamp(0, UTC), "arrival_date": None}
        row = {"value": json.dumps(record).encode(), **place}
        content = pl.DataFrame([row], schema_overrides={"partition": pl.Int32, "arrival_date": pl.Date}).to_arrow()
        write_deltalake(str(tmp_path / TABLES.name), content.cast(TABLES.arrow), mode="append")
        if offset == 0:
            first = LakeTables.newest(tmp_path, DECLARED)
    newest = LakeTables.newest(tmp_path, DECLARED)
    assert first is not None
    assert newest is not None
    assert first.rows().keys_at("blocked", 10).to_pylist() == ["x"]
    assert newest.rows().keys_at("blocked", 10).to_pylist() == []
    assert [change.is_set for change in ChangeReader(DECLARED).read(newest.records())] == [True, False]
