"""A declaration that is made from examples reads them, and says what it guesses."""

import gzip
import json
import random
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar.kafka.clients import producer
from nightjar.operations.infer import InferenceError, declaration, file_examples, stream_name
from nightjar.rules.errors import DeclarationError
from nightjar.rules.events import parse_event
from nightjar.rules.streams import Stream, streams_from_mapping
from tests.support.command import run
from tests.support.topics import TestTopics

ROWS = [
    {
        "meta": {"id": f"p{number}", "time": 1_767_614_400 + number / 4},
        "payment": {"amount": {"value": number + 0.25, "currency": "EUR"}, "card": {"token": f"c{number % 5}"}},
        "user.name": {"first": "ann"},
        "items": [{"sku": "s1"}] * (number % 3),
        "@timestamp": "2026-01-05T12:00:00Z",
        "opened": "2026-01-05 12:00",
        "flag": number % 2 == 0,
        "score": 0.123456789 * number,
        "count": number,
        "note": None if number % 4 else "x",
        "mixed": number if number % 2 else "a",
        "odd": [1] if number % 2 else 5,
        "empty": None,
        **({} if number % 10 else {"ip": "10.0.0.1"}),
    }
    for number in range(100)
]


def read(text: str, name: str = "s") -> Stream:
    return streams_from_mapping(tomllib.loads(text)["streams"], "test")[name]


def records(rows: list[dict[str, Any]]) -> list[bytes]:
    return [json.dumps(row).encode() for row in rows]


def test_every_example_is_an_event_of_the_declaration() -> None:
    text = declaration(records(ROWS), "s", "some.topic")
    stream = read(text)
    assert (stream.topic, stream.event_id, stream.event_time) == ("some.topic", "id", "timestamp")
    assert stream.entities == ("token",)
    assert {name: str(kind) for name, kind in stream.fields.items()} == {
        "id": "string",
        "time": "timestamp",
        "value": "decimal(12,2)",
        "currency": "string",
        "token": "string",
        "first": "string",
        "timestamp": "timestamp",
        "opened": "timestamp",
        "flag": "boolean",
        "score": "double",
        "count": "int64",
        "note": "string",
        "mixed": "string",
        "ip": "string",
        "sku": "string",
    }
    assert {name: str(path) for name, path in stream.paths.items()} == {
        "id": "meta.id",
        "time": "meta.time",
        "value": "payment.amount.value",
        "currency": "payment.amount.currency",
        "token": "payment.card.token",
        "first": '"user.name".first',
        "timestamp": "@timestamp",
        "sku": "items[0].sku",
    }
    assert stream.optional == {"ip", "sku"}
    assert all(isinstance(parse_event(record, stream), dict) for record in records(ROWS))
    assert "# 100 of 100 records are events by this declaration." in text


@pytest.mark.parametrize(
    "line",
    [
        'time = {type = "timestamp", unit = "s", from = "meta.time"}  # ? s since 1970',
        'opened = {type = "timestamp", zone = "UTC"}  # ? times without a zone: say which it is',
        'note = "string"  # NULL in 75.0%',
        'ip = {type = "string", optional = true}  # absent in 90.0%',
        'mixed = "string"  # ? number and text: a string takes the texts of all',
        "# left out: odd, which is a value, an object or a list in different records",
        "# left out: empty, which is NULL in all records",
    ],
)
def test_what_is_doubtful_is_said(line: str) -> None:
    assert line in declaration(records(ROWS), "s", "t").splitlines()


def test_what_no_field_is_has_to_be_named() -> None:
    """The stream's declaration is refused until it is."""
    text = declaration(records([{"a": 1}, {"a": 1}]), "s", "t")
    assert 'event_id = ""  # ? no field that every record has differs in each of them' in text
    assert 'event_time = ""  # ? no field that every record has is a time' in text
    with pytest.raises(DeclarationError):
        read(text)


@pytest.mark.parametrize("given", [[], [b"[1]"], [b"\xff"], [b"not json"]])
def test_without_an_object_there_is_nothing_to_declare(given: list[bytes]) -> None:
    with pytest.raises(InferenceError):
        declaration(given, "s", "t")


_KEYS = st.one_of(
    st.sampled_from(
        ["id", "time", "a.b", "a b", "@x", "$k", "AND", "partition", "x[0]", "\x1b[31m", "é", "1st", "", '"']
    ),
    st.text(max_size=4),
)
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**25), 10**25),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.sampled_from(["2026-01-05T12:00:00Z", "2026-01-05T12:00:00", "12.50", 1_767_614_400, 1_767_614_400_000]),
)
_VALUES = st.recursive(_SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3))
_OBJECTS = st.dictionaries(_KEYS, _VALUES, max_size=5)


@given(st.lists(_OBJECTS, min_size=1, max_size=5), st.integers(0, 9))
def test_of_any_objects_comes_a_declaration_that_reads_them(objects: list[dict[str, Any]], seed: int) -> None:
    """It is TOML without strange characters, and each field has a name and place of its own."""
    rng = random.Random(seed)  # noqa: S311
    rows = [{**each, "event_id": f"e{at}", "at": "2026-01-05T12:00:00Z"} for at, each in enumerate(objects)]
    rng.shuffle(rows)
    text = declaration(records(rows), "s", "t")
    assert all(character.isprintable() or character == "\n" for character in text)
    stream = read(text)
    assert [
        found for found in (parse_event(record, stream) for record in records(rows)) if type(found) is not dict
    ] == []


@pytest.mark.parametrize(
    ("origin", "name"),
    [("Bank.Transfers-v2", "bank_transfers_v2"), ("events", "events"), ("2026", "events"), ("é", "events")],
)
def test_a_stream_is_named_after_its_topic(origin: str, name: str) -> None:
    assert stream_name(origin) == name


def test_an_outer_field_keeps_its_name() -> None:
    same = {"payer": {"id": "p"}, "customerId": 5, "description": "x", "at": "2026-01-05T12:00:00Z"}
    rows = [{**same, "id": f"e{number}", "accounts": 1_767_614_400 + number} for number in range(9)]
    stream = read(declaration(records(rows), "s", "t"))
    assert (stream.event_id, str(stream.path("payer_id"))) == ("id", "payer.id")
    assert stream.entities == ("payer_id", "customerId")
    assert str(stream.fields["accounts"]) == "int64"


def test_what_is_empty_is_said() -> None:
    text = declaration(records([{"a": [], "b": {}, "c": [[]]}]), "s", "t")
    assert [line for line in text.splitlines() if "empty in all records" in line] == [
        f"# left out: {name}, which is empty in all records, or too deep" for name in ("a", "b", "c[0]")
    ]


@pytest.mark.parametrize("name", ["my stream", "a.b", "A", "1", ""])
def test_a_name_that_no_stream_has_is_refused(name: str) -> None:
    with pytest.raises(InferenceError, match="not the name of a stream"):
        declaration(records(ROWS), name, "t")


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_bytes(b"\xef\xbb\xbf" + records(ROWS)[0] + b"\n\n")
    assert file_examples(tmp_path / "e.jsonl", 5) == [records(ROWS)[0] + b"\n"]


def test_examples_may_be_an_array_and_compressed(tmp_path: Path) -> None:
    """As an export of a database, or of a web service, is."""
    (tmp_path / "e.json.gz").write_bytes(gzip.compress(b"[" + b",\n".join(records(ROWS)) + b"]"))
    assert file_examples(tmp_path / "e.json.gz", 2) == records(ROWS)[:2]


@pytest.mark.kafka
def test_the_newest_records_of_a_topic_are_the_examples(kafka_topics: TestTopics, tmp_path: Path) -> None:
    own = kafka_topics.ensure()
    topic = own.streams["transactions"].topic
    with producer(own.settings) as client:
        for record in records(ROWS):
            client.send(topic, value=record)
    environment = {"NIGHTJAR_BOOTSTRAP_SERVERS": own.settings.bootstrap}
    done = run("stream", "infer", "--topic", topic, "--name", "s", "--records", "40", environment=environment)
    assert done.returncode == 0, done.stderr
    assert read(done.stdout).topic == topic
    assert "# Examples: 4" in done.stdout
    file = tmp_path / "examples.jsonl"
    file.write_bytes(b"\n".join(records(ROWS)))
    of_file = run("stream", "infer", str(file), environment=environment)
    assert read(of_file.stdout, "examples").fields == read(done.stdout).fields
