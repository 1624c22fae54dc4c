"""S25: a union has its streams' events, and each way to read them makes the same events of them."""

import pickle
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

import nightjar
from nightjar.files.errors import EventsError
from nightjar.lake import delta
from nightjar.lake.events import as_declared
from nightjar.lake.scanning import scan, scan_files
from nightjar.lake.tables import events_table
from nightjar.rules.errors import DeclarationError, SettingsError
from nightjar.rules.streams import Stream, recorded_stream, streams_from_mapping
from nightjar.rules.types import INT64, STRING, TIMESTAMP
from nightjar.rules.unions import as_union
from tests.support.unions import place_in_topic
from tests.support.unions import united as one_by_one

DECLARED: dict[str, Any] = {
    "activity": {
        "union": {"login": "logins", "payment": "payments"},
        "entities": ["customer"],
        "fields": {"customer": {"login": "user"}},
    },
    "logins": {
        "event_id": "id",
        "event_time": "at",
        "entities": ["user"],
        "allowed_lateness": "1h",
        "fields": {
            "id": "string",
            "at": "timestamp",
            "user": {"type": "string", "sensitive": True},
            "ip": {"type": "string", "optional": True},
        },
    },
    "payments": {
        "event_id": "event_id",
        "event_time": "event_time",
        "entities": ["customer"],
        "max_future_skew": "5m",
        "fields": {
            "event_id": "string",
            "event_time": "timestamp",
            "customer": "string",
            "amount": "decimal(10,2)",
        },
    },
}
STREAMS = streams_from_mapping(DECLARED, "test")
UNION = STREAMS["activity"]


def test_a_union_has_all_fields_of_its_streams() -> None:
    """By their names or by those that it gives them; what is not in all of them is optional, what is sensitive in one
    stays so. It waits as long as the most patient of its streams."""
    own = {"stream": STRING, "stream_number": INT64, "event_id": STRING, "event_time": TIMESTAMP}
    others = {"customer", "id", "ip", "amount"}
    assert {name: UNION.fields[name] for name in own} == own
    assert UNION.fields.keys() - own.keys() == others
    assert (UNION.optional, UNION.sensitive) == ({"id", "ip", "amount"}, {"customer"})
    assert (UNION.allowed_lateness, UNION.max_future_skew) == (3_600_000_000, 300_000_000)
    assert (UNION.tiebreaker, UNION.topics) == ("stream_number", ("logins", "payments"))
    assert list(STREAMS) == list(DECLARED)
    assert pickle.loads(pickle.dumps(UNION)) == UNION  # noqa: S301  our own
    with pytest.raises(SettingsError, match="is a union, which has no topic"):
        recorded_stream("activity", STREAMS)


TEXTS = st.none() | st.sampled_from(["a", "b", "Ω", ""])
IDS = st.sampled_from(["1", "2", "x:y"])
TIMES = st.integers(0, 10**6)


def tables(draw: st.DrawFn) -> dict[str, pa.Table]:
    """Some events of each stream, with where they came from."""
    logins = st.fixed_dictionaries({"id": IDS, "at": TIMES, "user": TEXTS, "ip": TEXTS})
    payments = st.fixed_dictionaries(
        {"event_id": IDS, "event_time": TIMES, "customer": TEXTS, "amount": st.none() | st.decimals(0, 99, places=2)}
    )
    found = {}
    for name, rows in {"logins": logins, "payments": payments}.items():
        events = pa.Table.from_pylist(draw(st.lists(rows, max_size=5)), STREAMS[name].schema)
        found[name] = events.append_column("partition", pa.array([0, 1, 2, 3, 4][: len(events)], pa.int32()))
    return found


@given(st.composite(tables)())
def test_whoever_reads_a_union_has_the_same_events(drawn: dict[str, pa.Table]) -> None:
    """The stream's columns are what the definition says of each event alone; partitions of two topics stay apart."""
    made = pa.concat_tables(as_union(drawn[of.stream.name], UNION, of) for of in UNION.members)
    assert made.select(list(UNION.fields)).to_pylist() == one_by_one(UNION, drawn).to_pylist()
    places = made.column("partition").to_pylist()
    assert len(set(places)) == len(places)
    named = {place_in_topic(UNION, place) for place in places}
    assert named == {(name, at) for name, table in drawn.items() for at in table.column("partition").to_pylist()}
    by_topic = {name: dict.fromkeys(table.column("partition").to_pylist(), name) for name, table in drawn.items()}
    assert UNION.by_partition(by_topic) == {place: place_in_topic(UNION, place)[0] for place in places}
    for member in UNION.members:
        assert UNION.of_member(member, UNION.by_partition(by_topic)) == by_topic[member.stream.name]


def test_the_lake_reads_a_union_from_the_tables_of_its_streams(tmp_path: Path) -> None:
    """Whole or by files that may have the times, in a version of each; an unusable record has no id there either."""
    drawn = {
        "logins": pa.Table.from_pylist(
            [{"id": "1", "at": 5, "user": "ann", "ip": None}, {"id": None, "at": None, "user": None, "ip": None}],
            STREAMS["logins"].schema,
        ),
        "payments": pa.Table.from_pylist(
            [{"event_id": "1", "event_time": 9 * 10**9, "customer": "ann", "amount": None}], STREAMS["payments"].schema
        ),
    }
    for name, events in drawn.items():
        _write(tmp_path, STREAMS[name], events)
    table = events_table(UNION)
    version = delta.version(tmp_path, table)
    assert version == (1, 1)
    usable = pl.col("event_id").is_not_null()
    read = scan(tmp_path, table, version)
    assert read.collect_schema() == pl.DataFrame(table.arrow.empty_table()).schema
    rows = as_declared(read.filter(usable).collect().to_arrow(compat_level=pl.CompatLevel.oldest()), UNION)
    expected = one_by_one(UNION, {"logins": drawn["logins"].slice(0, 1), "payments": drawn["payments"]})
    assert rows.select(list(UNION.fields)).to_pylist() == expected.to_pylist()
    assert read.filter(~usable).select("stream", "rejected").collect().rows() == [("login", "not_json")]
    files = delta.files_within(tmp_path, table, version, instant="event_time", spans=[(9 * 10**9, 9 * 10**9)])
    found = scan_files(table, files).select("event_id", "partition").collect().rows()
    assert found == [("payment:1", UNION.members[1].first_partition)]
    days = delta.spans_by_day(tmp_path, table, "event_time")
    assert [*days.values()] == [(0, 9 * 10**9)]  # the log's times are of milliseconds


def _write(root: Path, stream: Stream, events: pa.Table) -> None:
    table = events_table(stream)
    delta.make(root, table)
    rows = [
        {
            **event,
            "rejected": None if event[stream.event_id] else "not_json",
            "partition": 0,
            "offset": offset,
            "arrival_time": 0,
            "arrival_date": 0,
        }
        for offset, event in enumerate(events.to_pylist())
    ]
    write_deltalake(delta.opened(root, table), pa.Table.from_pylist(rows, table.arrow), mode="append")


RULE = {
    "id": "paid-after-failure",
    "stream": "activity",
    "group_by": ["customer"],
    "measures": {"logins": {"count": "*", "over": "1h", "where": "stream = 'login'"}},
    "when": "stream = 'payment' AND logins > 0",
}


def test_rules_on_a_union_are_evaluated_on_files_of_its_streams(tmp_path: Path) -> None:
    """A folder with a file of each, by the names that they have there; or tables by these names."""
    (tmp_path / "login.csv").write_text("id,at,user\n1,2026-01-01T00:00:00Z,ann\n")
    (tmp_path / "payment.jsonl").write_text(
        '{"event_id": "7", "event_time": "2026-01-01T00:00:00Z", "customer": "ann", "amount": 1}\n'
    )
    by_file = nightjar.evaluate(RULE, tmp_path, stream="activity", streams=DECLARED)
    assert by_file.violations["event_id"].to_list() == ["payment:7"]
    each = {"login": tmp_path / "login.csv", "payment": tmp_path / "payment.jsonl"}
    assert nightjar.evaluate(RULE, each, stream="activity", streams=DECLARED).violations.equals(by_file.violations)
    (tmp_path / "login.csv").unlink()
    with pytest.raises(EventsError, match=r"has no files of login.*login.csv, payment.csv"):
        nightjar.evaluate(RULE, tmp_path, stream="activity", streams=DECLARED)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"union": ["logins"]}, "is not a list of streams"),
        ({"union": "logins"}, "is not a list of streams"),
        ({"union": ["logins", "logins"]}, "names a stream twice"),
        ({"union": {"a": "logins", "b": "logins"}}, "names a stream twice"),
        ({"union": ["logins", "nothing"]}, "'nothing' is not a declared stream with a topic"),
        ({"union": ["logins", "activity"]}, "'activity' is not a declared stream with a topic"),
        ({"union": {"Login": "logins", "b": "payments"}}, "'Login' is not a name"),
        ({"topic": "activity"}, "streams.activity.topic: is not a key of a union"),
        ({"entities": ["user"]}, "'user' is not a field of the union"),
        ({"entities": []}, "is not a list of fields"),
        ({"entities": ["customer", "customer"]}, "names a field twice"),
        ({"tiebreaker": "ip"}, "'ip' is not an int64, decimal or timestamp"),
        ({"allowed_lateness": "soon"}, "streams.activity.allowed_lateness"),
        ({"fields": ["a"]}, "fields: is not a table"),
        ({"fields": {"event_id": {"login": "ip"}}}, "is a field that every union has"),
        ({"fields": {"a b": {"login": "ip"}}}, "cannot be the name of a field"),
        ({"fields": {"customer": "user"}}, "does not say whose field it is"),
        ({"fields": {"customer": {"logins": "user"}}}, "customer.logins: is not in the union"),
        ({"fields": {"customer": {"login": "name"}}}, "'name' is not a field of login"),
        ({"fields": {"customer": {"login": "user"}, "who": {"login": "user"}}}, "user is customer already"),
        ({"fields": {"ip": {"login": "user"}}}, "would be both user and ip of login"),
        ({"fields": {"amount": {"login": "user"}}}, r"is string in login and decimal\(10,2\) in payment"),
        ({"fields": {"Amount": {"login": "user"}}}, "differs from another field in case only"),
    ],
)
def test_a_union_that_cannot_be_is_refused(change: dict[str, Any], expected: str) -> None:
    """With the key, and what to write instead."""
    with pytest.raises(DeclarationError, match=expected) as refused:
        streams_from_mapping({**DECLARED, "activity": {**DECLARED["activity"], **change}}, "test")
    assert refused.value.remedy


def test_a_field_of_the_name_of_the_unions_own_is_refused() -> None:
    """`stream` of a stream could be meant, or the name of the stream."""
    logins = {**DECLARED["logins"], "fields": {**DECLARED["logins"]["fields"], "stream": "string"}}
    with pytest.raises(DeclarationError, match="has the name of a field that every union has"):
        streams_from_mapping({**DECLARED, "logins": logins}, "test")
