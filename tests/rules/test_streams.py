"""Stream declarations."""

import copy
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from nightjar.rules.errors import DeclarationError
from nightjar.rules.field_paths import FieldPath
from nightjar.rules.streams import load_streams, streams_from_mapping
from nightjar.rules.types import STRING, TIMESTAMP, FieldType, decimal
from tests.support.nested_stream import DERIVED, NESTED

DECLARATION: dict[str, Any] = {
    "clicks": {
        "topic": "clicks",
        "event_id": "id",
        "event_time": "at",
        "entities": ["user"],
        "allowed_lateness": "5s",
        "max_future_skew": "1s",
        "fields": {"id": "string", "at": "timestamp", "user": "string", "price": "decimal(10,3)", "n": "int64"},
    }
}


def test_the_shipped_streams_are_declared() -> None:
    """Transactions, logins and the Flink demo's payments are there without any configuration."""
    streams = load_streams()
    assert list(streams) == ["transactions", "logins", "payments"]
    transactions = streams["transactions"]
    assert dict(transactions.fields) == {
        "transaction_id": STRING,
        "event_time": TIMESTAMP,
        "customer_id": STRING,
        "terminal_id": STRING,
        "amount": decimal(12, 2),
    }
    assert transactions.entities == ("customer_id", "terminal_id")
    assert (transactions.allowed_lateness, transactions.max_future_skew) == (600_000_000, 60_000_000)
    assert (streams["payments"].event_id, streams["payments"].event_time) == ("transactionId", "eventTime")


def test_a_declaration_gives_the_schema_of_its_events() -> None:
    """The Arrow schema holds the fields in the order they are declared in."""
    stream = streams_from_mapping(DECLARATION, "test")["clicks"]
    assert stream.schema == pa.schema(
        [
            ("id", pa.string()),
            ("at", pa.timestamp("us", "UTC")),
            ("user", pa.string()),
            ("price", pa.decimal128(10, 3)),
            ("n", pa.int64()),
        ]
    )


def test_a_field_may_be_declared_optional() -> None:
    """A table beside the plain form; the entity fields may be optional too."""
    declaration = copy.deepcopy(DECLARATION)
    declaration["clicks"]["fields"] |= {
        "user": {"type": "string", "optional": True},
        "price": {"type": "decimal(10,3)", "optional": True},
        "n": {"type": "int64", "optional": False},
    }
    stream = streams_from_mapping(declaration, "test")["clicks"]
    assert stream == replace(streams_from_mapping(DECLARATION, "test")["clicks"], optional=frozenset({"user", "price"}))
    assert pickle.loads(pickle.dumps(stream)) == stream  # noqa: S301


def test_a_field_may_stand_elsewhere_and_be_written_otherwise() -> None:
    assert NESTED.path("amount") == FieldPath(("payment", "amount", "value"))
    assert NESTED.path("local") == FieldPath(("local",))
    assert (NESTED.shown_place("at"), NESTED.shown_place("local")) == ("at (meta.times[1])", "local")
    assert NESTED.times.keys() == {"at", "local", "logged", "day", "berlin"}
    values = {name: name for name in NESTED.fields}
    record = NESTED.record(values)
    assert {name: NESTED.path(name).value(record) for name in values} == values
    assert record["prices"] == [None, "second"]


def test_a_field_may_be_derived_from_others() -> None:
    assert {name: str(DERIVED.fields[name]) for name in DERIVED.derived} == {
        "payer": "string",
        "hour": "int64",
        "doubled": "decimal(13,2)",
        "share": "double",
        "is_large": "boolean",
        "seconds": "decimal(18,6)",
        "earliest": "timestamp",
    }
    assert DERIVED.derived.keys() <= DERIVED.optional, "events from before have none"
    assert DERIVED.sensitive == {"berlin", "seconds", "share"}, "also what is computed from a sensitive field"
    assert DERIVED.recorded == NESTED.fields
    assert DERIVED.record({**dict.fromkeys(NESTED.fields, 1), "hour": 5}) == NESTED.record(
        dict.fromkeys(NESTED.fields, 1)
    )


@pytest.mark.parametrize(
    ("fields", "place", "remedy"),
    [
        ({"n": {"type": "int64", "from": "a..b"}}, "fields.n.from", "payment.amount"),
        ({"n": {"type": "int64", "from": ["a"]}}, "fields.n.from", "payment.amount"),
        ({"n": {"type": "int64", "from": "user.age"}}, "fields.n.from", "within the other"),
        ({"n": {"type": "int64", "from": "x[0]"}, "m": {"type": "int64", "from": "x.y"}}, "fields.m.from", "a list"),
        ({"n": {"type": "int64", "from": "price"}}, "fields.n.from", 'sql = "price"'),
        ({"n": {"type": "int64", "from": "m.x"}, "m": "string"}, "fields.m", "within the other"),
        ({'a"b': "string"}, 'fields.a"b', "such as AND or CASE"),
        ({"n": {"type": "int64", "unit": "s"}}, "fields.n.unit", "Leave it out"),
        ({"t": {"type": "timestamp", "unit": "m"}}, "fields.t.unit", "s, ms, us, ns"),
        ({"t": {"type": "timestamp", "zone": "Mars"}}, "fields.t.zone", "Europe/Berlin"),
        ({"t": {"type": "timestamp", "format": "%Y-%m-%d"}}, "fields.t.format", "Add `zone`"),
        ({"t": {"type": "timestamp", "formats": "%Y-%m-%d"}}, "fields.t.formats", "Did you mean format?"),
        ({"d": {"sql": "price * n"}}, "fields.d.sql", "CAST(… AS DOUBLE)"),
        ({"d": {"sql": "LOWER(e)"}, "e": {"sql": "user"}}, "fields.d.sql", "computed from fields that records have"),
        ({"d": {"sql": "SUM(price)"}}, "fields.d.sql", "Declare a measure"),
        ({"d": {"sql": "NULL"}}, "fields.d.sql", "Name a field"),
        ({"d": {"sql": 5}}, "fields.d.sql", "LOWER(email)"),
        ({"d": {"sql": "n", "type": "int64"}}, "fields.d.type", "Leave it out"),
        ({"d": {"sql": "n", "optional": True}}, "fields.d.optional", "Leave it out"),
        ({"order.by": "string"}, "fields.order.by", 'from = "\\"order.by\\""'),
    ],
)
def test_a_place_that_no_record_has_is_refused(fields: dict[str, Any], place: str, remedy: str) -> None:
    declared = copy.deepcopy(DECLARATION)
    declared["clicks"]["fields"] |= fields
    with pytest.raises(DeclarationError) as refused:
        streams_from_mapping(declared, "test")
    assert refused.value.where == f"test: streams.clicks.{place}"
    assert remedy in refused.value.remedy


def test_events_from_before_a_field_was_declared_have_null_for_it() -> None:
    """In the declared order, before whatever else stands beside the fields."""
    stream = streams_from_mapping(DECLARATION, "test")["clicks"]
    older = pa.table({"late": [False], "n": [1], "at": pa.array([5], TIMESTAMP.arrow), "id": ["a"], "user": ["u"]})
    completed = stream.completed(older)
    assert completed.schema == stream.schema.append(pa.field("late", pa.bool_()))
    assert completed.column("price").to_pylist() == [None]
    assert stream.completed(completed) == completed


def test_omitted_keys_have_defaults() -> None:
    """The topic is called like the stream; lateness is ten minutes, future skew one."""
    declaration = copy.deepcopy(DECLARATION)
    for key in ("topic", "allowed_lateness", "max_future_skew"):
        del declaration["clicks"][key]
    stream = streams_from_mapping(declaration, "test")["clicks"]
    assert (stream.topic, stream.allowed_lateness, stream.max_future_skew) == ("clicks", 600_000_000, 60_000_000)


def test_a_stream_travels_to_another_process() -> None:
    """A pickled stream comes back equal."""
    for stream in (load_streams()["logins"], DERIVED):
        assert pickle.loads(pickle.dumps(stream)) == stream  # noqa: S301


MISSING = object()


@pytest.mark.parametrize(
    ("path", "value", "place", "remedy"),
    [
        ("event_id", MISSING, "streams.clicks.event_id", "Name the field"),
        ("event_id", "idd", "streams.clicks.event_id", "Did you mean id?"),
        ("event_id", "n", "streams.clicks.event_id", 'n = "string"'),
        ("event_time", "user", "streams.clicks.event_time", 'user = "timestamp"'),
        ("tiebreaker", "user", "streams.clicks.tiebreaker", "int64, decimal or timestamp"),
        ("tiebreaker", "at", "streams.clicks.tiebreaker", "int64, decimal or timestamp"),
        ("tiebreaker", "m", "streams.clicks.tiebreaker", "Fields are"),
        ("entities", [], "streams.clicks.entities", "at least one"),
        ("entities", "user", "streams.clicks.entities", "at least one"),
        ("entities", ["user", "user"], "streams.clicks.entities", "once"),
        ("entities", ["usr"], "streams.clicks.entities", "Did you mean user?"),
        ("allowed_lateness", "10", "streams.clicks.allowed_lateness", "10s"),
        ("allowed_lateness", 10, "streams.clicks.allowed_lateness", "10s"),
        ("max_future_skew", "soon", "streams.clicks.max_future_skew", "units ms, s, m, h, d"),
        ("topic", "a b", "streams.clicks.topic", "letters"),
        ("latenes", "10s", "streams.clicks.latenes", "Keys are"),
        ("fields", {}, "streams.clicks.fields", "Declare them under"),
        ("fields.price", "decimal(30,2)", "streams.clicks.fields.price", "1 to 18 digits"),
        ("fields.price", "decimal(2,3)", "streams.clicks.fields.price", "at most the first"),
        ("fields.price", "decimal", "streams.clicks.fields.price", "Did you mean decimal(12,2)?"),
        ("fields.n", "int", "streams.clicks.fields.n", "Did you mean int64?"),
        ("fields.n", 64, "streams.clicks.fields.n", "Types are"),
        ("fields.two words", "string", "streams.clicks.fields.two words", "letters"),
        ("fields.case", "string", "streams.clicks.fields.case", "no word of SQL"),
        ("fields.arrival_time", "timestamp", "streams.clicks.fields.arrival_time", "Rename the field"),
        ("fields.n", {"type": "int"}, "streams.clicks.fields.n", "Did you mean int64?"),
        ("fields.n", {"optional": True}, "streams.clicks.fields.n", "Types are"),
        ("fields.n", {"type": "int64", "optionl": True}, "streams.clicks.fields.n.optionl", "Did you mean optional?"),
        ("fields.n", {"type": "int64", "optional": "yes"}, "streams.clicks.fields.n.optional", "true or false"),
        ("fields.id", {"type": "string", "optional": True}, "streams.clicks.fields.id", 'Declare id = "string"'),
        ("fields.at", {"type": "timestamp", "optional": True}, "streams.clicks.fields.at", 'at = "timestamp"'),
        ("fields.USER", "string", "streams.clicks.fields.USER", "another name"),
    ],
)
def test_a_bad_declaration_is_refused_with_its_key_and_remedy(path: str, value: Any, place: str, remedy: str) -> None:
    """The error names the file, the key, and what would be right."""
    declaration = copy.deepcopy(DECLARATION)
    *outer, last = path.split(".")
    table = declaration["clicks"]
    for key in outer:
        table = table[key]
    if value is MISSING:
        del table[last]
    else:
        table[last] = value
    with pytest.raises(DeclarationError) as refusal:
        streams_from_mapping(declaration, "streams.toml")
    assert refusal.value.where == f"streams.toml: {place}"
    assert remedy in refusal.value.remedy


def test_two_streams_do_not_share_a_topic() -> None:
    """An event's stream is known by its topic alone."""
    both = {"clicks": DECLARATION["clicks"], "taps": DECLARATION["clicks"]}
    with pytest.raises(DeclarationError, match="already belongs to stream clicks"):
        streams_from_mapping(both, "test")


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("[streams.x", "is not TOML"),
        ("streams = 5", "no table of streams"),
        ("", "no table of streams"),
        ("[stream.x]", "is not a key of this file"),
        ("[streams]", "no stream is declared"),
        ("[streams]\nx = 5", "is not a table"),
        ("[streams.X]", "is not a stream name"),
    ],
)
def test_a_file_that_declares_nothing_is_refused(tmp_path: Path, content: str, what: str) -> None:
    """The error of a file names the file."""
    path = tmp_path / "mine.toml"
    path.write_text(content)
    with pytest.raises(DeclarationError) as refusal:
        load_streams(path)
    assert what in refusal.value.what
    assert str(path) in refusal.value.where


def test_a_file_that_is_not_there_is_no_traceback(tmp_path: Path) -> None:
    """A wrong path is an error of nightjar's."""
    with pytest.raises(DeclarationError, match="cannot be read"):
        load_streams(tmp_path / "none.toml")


@pytest.mark.parametrize("text", ["string", "int64", "double", "boolean", "timestamp", "decimal(18,0)", "decimal(1,1)"])
def test_a_type_reads_back_as_it_is_shown(text: str) -> None:
    """Types are written the same way everywhere."""
    assert str(FieldType.parse(text)) == text
