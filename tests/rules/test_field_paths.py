"""A path leads to one place in a record, whatever else the record holds."""

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nightjar.rules.errors import DeclarationError
from nightjar.rules.field_paths import ABSENT, BLOCKED, FieldPath, nested

KEYS = st.one_of(
    st.sampled_from(["a", "b", "user.name", "@timestamp", "user-id", "$key", "order by", "x[0]"]),
    st.text(st.characters(exclude_characters='"', exclude_categories=["Cs"]), min_size=1, max_size=5),
)
FIRST = KEYS.filter(lambda key: key != "$key")
PATHS = st.tuples(FIRST, st.lists(KEYS | st.integers(0, 3), max_size=3)).map(
    lambda made: FieldPath((made[0], *made[1]))
)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("amount", ("amount",)),
        ("payment.amount.value", ("payment", "amount", "value")),
        ("items[0].sku", ("items", 0, "sku")),
        ("matrix[2][10]", ("matrix", 2, 10)),
        ("@timestamp", ("@timestamp",)),
        ('"user.name".first', ("user.name", "first")),
        ('user."$id"', ("user", "$id")),
        ("a b.c", ("a b", "c")),
        ("$key", ("$key",)),
        ("$headers.tenant", ("$headers", "tenant")),
        ('$headers."x.y"', ("$headers", "x.y")),
        ("$change.source.lsn", ("$change", "source", "lsn")),
    ],
)
def test_a_path_has_one_meaning(text: str, steps: tuple[str | int, ...]) -> None:
    path = FieldPath.parse(text)
    assert path.steps == steps
    assert str(path) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", ".a", "a.", "a..b", "[0]", "[0].a", "a[]", "a[-1]", "a[x]", "a[1000]", 'a"b"', '"a', '""', '"a"b'),
        *("a ", "a\tb", "a. b", '"\ud800"'),
        *(
            "$keys",
            "$key.a",
            "$key[0]",
            "$headers",
            "$headers[0]",
            "$headers.a.b",
            '"$key"',
            '"$change".op',
            "a.$b",
            " a",
            "a[0]b",
            "a" + ".a" * 50,
            5,
            None,
            ["a"],
        ),
    ],
)
def test_other_texts_are_refused(text: object) -> None:
    with pytest.raises(DeclarationError):
        FieldPath.parse(text)


@given(PATHS)
def test_a_path_is_read_as_it_is_written(path: FieldPath) -> None:
    assert FieldPath.parse(str(path)) == path


RECORD: dict[str, Any] = {"a": {"b": [1, {"c": "x"}], "n": None, "e": []}, "t": "text"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("t", "text"),
        ("a.b[0]", 1),
        ("a.b[1].c", "x"),
        ("a.n", None),
        ("a.n.further[2]", None),
        ("a.b[2]", ABSENT),
        ("a.e[0].c", ABSENT),
        ("a.z", ABSENT),
        ("z.z", ABSENT),
        ("t.z", BLOCKED),
        ("a.b.c", BLOCKED),
        ("a[0]", BLOCKED),
        ("a.b[0].c", BLOCKED),
    ],
)
def test_a_value_is_there_or_it_is_said_why_not(path: str, value: object) -> None:
    assert FieldPath.parse(path).value(RECORD) is value or FieldPath.parse(path).value(RECORD) == value


@pytest.mark.parametrize(
    ("path", "words"),
    [("t.z", "t is not an object"), ("a.b.c", "a.b is not an object"), ("a[0]", "a is not a list")],
)
def test_an_obstacle_is_named(path: str, words: str) -> None:
    assert FieldPath.parse(path).obstacle(RECORD) == words


@given(st.lists(st.tuples(PATHS, st.integers()), max_size=6))
def test_values_are_found_at_the_places_where_they_are_put(values: list[tuple[FieldPath, int]]) -> None:
    """Unless two of the paths conflict; the same path twice has the later value."""
    paths = [path for path, _ in values]
    assume(not any(path.conflicts_with(other) for at, path in enumerate(paths) for other in paths[:at]))
    record = nested(values)
    assert json.loads(json.dumps(record)) == record
    for path, value in dict(values).items():
        assert path.value(record) == value
        changed = path.changed(record, lambda held: held + 1)
        assert path.value(changed) == value + 1
        assert path.value(record) == value


def test_nothing_is_changed_where_nothing_is() -> None:
    for path in ("a.n.further", "a.n.further[2]", "a.z", "t.z"):
        assert FieldPath.parse(path).changed(RECORD, lambda _: 1 / 0) is RECORD


@given(PATHS, PATHS)
def test_paths_conflict_either_way(one: FieldPath, other: FieldPath) -> None:
    assert one.conflicts_with(other) == other.conflicts_with(one)
    assert not one.conflicts_with(one)
