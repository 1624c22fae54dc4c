"""Values of sensitive fields: in no text for people, unless they ask for them."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from nightjar.backfill.inputs.context import RunInputs
from nightjar.backfill.publish.verdicts import held_back
from nightjar.backfill.reconcile.reconciliation import corrections, reconcile
from nightjar.backfill.staging import HELD_BACK, Notes, stage
from nightjar.cli.app import app
from nightjar.configuration.backfill import backfill_config
from nightjar.configuration.settings import load_settings
from nightjar.contracts.rule_status import fold
from nightjar.expectations.measured import measured
from nightjar.expectations.suites import events_suite, violations_suite
from nightjar.lake import delta
from nightjar.lake.archive import make_tables
from nightjar.lake.events import EventReader
from nightjar.lake.json_topics import JsonReader
from nightjar.lake.tables import ALERTS, COORDINATES, RULE_STATUS, Table, events_table
from nightjar.operations import alert_masks
from nightjar.operations.alert_masks import AlertMasks
from nightjar.operations.backfill_requests import request_of
from nightjar.rules.alert_ids import alert_id
from nightjar.rules.canonical import canonical
from nightjar.rules.errors import DeclarationError
from nightjar.rules.events import Rejection, parse_event
from nightjar.rules.masking import MASK, names_by_stream
from nightjar.rules.model import parse_rule
from nightjar.rules.rulebook import RuleBook
from nightjar.rules.streams import Stream, load_streams, streams_from_mapping
from nightjar.rules.timestamps import microseconds
from nightjar.rules.truth import Truth
from nightjar.rules.versions import RuleSet, RuleVersion
from tests.support.answers import answered

SECRET, TERMINAL = "DE89370400440532013000", "t7"
DECLARED = """
[streams.payments]
event_id = "id"
event_time = "at"
entities = ["account"]
[streams.payments.fields]
id = "string"
at = "timestamp"
account = {type = "string", sensitive = true}
terminal = "string"
amount = "decimal(12,2)"
"""
RULE: dict[str, Any] = {
    "id": "busy",
    "stream": "payments",
    "group_by": ["account"],
    "when": "n >= 1",
    "effective": "2026-01-01T00:00:00Z",
    "measures": {
        "n": {"count": "*", "over": "1h"},
        "accounts": {"values": "account", "over": "1h"},
        "several": {"count_distinct": "account", "over": "1h"},
        "where": {"last": "terminal", "over": "1h"},
    },
    "description": "{n} by {account}, also {accounts} ({several}), at {where}",
}
AT = datetime(2026, 1, 5, 10, tzinfo=UTC)
EVENT = {"id": "p1", "at": "2026-01-05T10:00:00Z", "account": SECRET, "terminal": TERMINAL, "amount": "5.00"}


@pytest.fixture
def declared(tmp_path: Path) -> Path:
    """The file of a stream with a sensitive field."""
    file = tmp_path / "streams.toml"
    file.write_text(DECLARED)
    return file


@pytest.fixture
def stream(declared: Path) -> Stream:
    """The stream with a sensitive field."""
    return load_streams(declared)["payments"]


def violation(stream: Stream) -> dict[str, Any]:
    """The rule's only violation at the event."""
    event = parse_event(json.dumps(EVENT).encode(), stream)
    assert isinstance(event, dict)
    rule = parse_rule(json.dumps(RULE), {stream.name: stream})
    columns = {name: pa.array([value]).cast(stream.fields[name].arrow) for name, value in event.items()}
    events = pa.table(columns | {"arrival_time": pa.array([AT], pa.timestamp("us", "UTC"))})
    (found,) = Truth(stream, RuleSet((RuleVersion(rule, 1, -(1 << 61)),)), events).violations().to_pylist()
    return found


def test_an_alerts_text_has_no_sensitive_value_and_its_group_has_it(stream: Stream) -> None:
    """Of the field, and of measures of it but counts; consumers need the group to act."""
    found = violation(stream)
    assert found["text"] == f"1 by {MASK}, also {MASK} (1), at {TERMINAL}"
    assert json.loads(found["group"]) == {"account": SECRET}
    plain = violation(replace(stream, sensitive=frozenset()))
    assert plain["text"] == f"1 by {SECRET}, also {SECRET} (1), at {TERMINAL}"


@pytest.mark.parametrize(
    "record",
    [{**EVENT, "account": {"number": SECRET}}, [SECRET]],
    ids=["mistyped", "no object"],
)
def test_a_rejections_detail_does_not_quote_it(stream: Stream, record: object) -> None:
    """The detail goes to the quarantine topic, logs and pages; the original is there for who may read it."""
    found = parse_event(json.dumps(record).encode(), stream)
    assert isinstance(found, Rejection)
    assert SECRET not in found.detail
    plain = parse_event(json.dumps(record).encode(), replace(stream, sensitive=frozenset()))
    assert isinstance(plain, Rejection)
    assert SECRET in plain.detail


def test_an_id_is_not_sensitive() -> None:
    """Everything names events by it."""
    declared: dict[str, Any] = {
        "event_id": "id",
        "event_time": "at",
        "entities": ["id"],
        "fields": {"id": {"type": "string", "sensitive": True}, "at": "timestamp"},
    }
    with pytest.raises(DeclarationError, match=r"fields\.id.*by which people and logs name an event"):
        streams_from_mapping({"s": declared}, "x.toml")
    declared["fields"]["id"] = {"type": "string", "sensitive": "yes"}
    with pytest.raises(DeclarationError, match=r"fields\.id\.sensitive.*is not true or false"):
        streams_from_mapping({"s": declared}, "x.toml")


def test_examples_of_the_gate_do_not_show_it(stream: Stream) -> None:
    """They go to data docs, manifests and logs: a column of events, and members of groups and measures."""
    columns = events_table(stream).columns
    row = dict.fromkeys(columns) | {"id": "", "account": SECRET, "terminal": TERMINAL, "partition": 0, "offset": 1}
    records = pl.DataFrame(pa.Table.from_pylist([row], events_table(stream).arrow))
    (given,) = (
        each for each in measured(events_suite(stream, columns), records) if each.expectation == "event_id_given"
    )
    assert given.observed == 1
    assert (given.examples[0]["account"], given.examples[0]["terminal"]) == (MASK, TERMINAL)

    rule = parse_rule(json.dumps(RULE), {stream.name: stream})
    suite = violations_suite(names_by_stream([rule], {stream.name: stream}))
    shown = suite.example(violation(stream) | {"expected_id": "x"})
    assert SECRET not in str(shown["group"]) + shown["measures"]
    assert json.loads(shown["measures"])["where"] == TERMINAL


def test_a_verdict_does_not_show_it(stream: Stream, declared: Path, tmp_path: Path) -> None:
    """The list of alerts that were held back is logged, stored and sent to people."""
    settings = load_settings(data_dir=tmp_path, streams=declared)
    config = backfill_config(settings, {stream.name: stream})
    request = request_of(AT.date(), config.streams, run_id="r")
    row = violation(stream) | {"outcome": "missed", "revision": 1, "kind": "alert"}
    stage(pa.Table.from_pylist([row]), request.staged(config.lake) / HELD_BACK / "0.parquet")
    verdict = held_back(RunInputs(config, request, Notes(0, 0, {}, [])))
    assert "event p1" in str(verdict)
    assert SECRET not in str(verdict) + str(verdict.alerts)  # type: ignore[union-attr]


def test_declaring_a_field_sensitive_is_no_difference_of_past_alerts(stream: Stream) -> None:
    """Their texts were made before: measures and groups decide."""
    now, before = violation(stream), violation(replace(stream, sensitive=frozenset()))
    record = before | {"revision": 1, "kind": "alert", "source": "stream", "cause": None, "overflow": None}
    truth, alerts = (
        pl.DataFrame([now]),
        pl.DataFrame([record], schema_overrides={"cause": pl.String, "overflow": pl.Boolean}),
    )
    none = pl.DataFrame(schema={"alert_id": pl.String, "cause": pl.String})
    assert reconcile(truth, alerts).get_column("outcome").to_list() == ["revised"]
    assert reconcile(truth, alerts, (), {stream.name}).get_column("outcome").to_list() == ["matched"]
    assert corrections(truth, alerts, none, (), {stream.name}).height == 0


def alert_of(found: dict[str, Any]) -> dict[str, Any]:
    """A violation as the record that announces it."""
    return {
        **found,
        "group": json.loads(found["group"]),
        "measures": json.loads(found["measures"]),
        "revision": 1,
        "kind": "alert",
        "event_time": "2026-01-05T10:00:00Z",
        "source": "stream",
        "emitted_at": "2026-01-05T10:00:01Z",
        "muted": False,
    }


def test_alerts_are_listed_without_it(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the alert's rule; of an unknown rule nothing is shown, and old texts go whole."""
    book, streams = RuleBook({stream.name: stream}), {stream.name: stream}
    for answer in answered(streams, RULE):
        fold(book, answer)
    reads: list[object] = []

    def read(*_: object) -> RuleBook:
        reads.append(1)
        return book

    monkeypatch.setattr(alert_masks, "rule_book", read)
    masks = AlertMasks(load_settings(), streams)
    record = alert_of(violation(replace(stream, sensitive=frozenset())))
    shown = masks.masked(record)
    assert SECRET not in json.dumps(shown)
    assert (shown["measures"]["n"], shown["measures"]["where"], shown["text"]) == (1, TERMINAL, MASK)
    for _ in range(3):
        unknown = masks.masked(record | {"rule_id": "forged"})
    assert (unknown["group"], unknown["measures"]["n"]) == ({"account": MASK}, MASK)
    assert len(reads) == 2, "once at the beginning, once for the unknown rule"


def test_explain_shows_it_only_if_asked(stream: Stream, declared: Path, tmp_path: Path) -> None:
    """Group, window, measures and revisions, as text and as JSON."""
    settings = load_settings(data_dir=tmp_path / "data", streams=declared)
    config = backfill_config(settings, {stream.name: stream})
    make_tables(config.lake)
    record = alert_of(violation(replace(stream, sensitive=frozenset())))
    put(config.lake.root, events_table(stream), EventReader(stream), json.dumps(EVENT).encode())
    put(config.lake.root, ALERTS, JsonReader(ALERTS), json.dumps(record).encode())
    for answer in answered({stream.name: stream}, RULE):
        put(config.lake.root, RULE_STATUS, JsonReader(RULE_STATUS), answer.value)
    given = {"NIGHTJAR_DATA_DIR": str(tmp_path / "data"), "NIGHTJAR_STREAMS": str(declared)}
    named = alert_id("busy", 1, "p1", microseconds(AT), canonical({"account": SECRET}))
    assert named == record["alert_id"]
    for options in ([], ["--json"]):
        hidden = CliRunner().invoke(app, ["explain", named, *options], env=given)
        assert hidden.exit_code == 0, hidden.output
        assert SECRET not in hidden.output
        assert TERMINAL in hidden.output
        shown = CliRunner().invoke(app, ["explain", named, *options, "--reveal"], env=given)
        assert SECRET in shown.output


def put(root: Path, table: Table, reader: EventReader | JsonReader, value: bytes) -> None:
    """Archive one record."""
    place = {"partition": 0, "offset": 0, "arrival_time": AT, "arrival_date": AT.date()}
    kinds = {name: table.arrow.field(name).type for name in COORDINATES}
    columns = {"value": pa.array([value], pa.binary()), "sent_at": pa.nulls(1, pa.int64())}
    columns |= {name: pa.array([place[name]], kinds[name]) for name in COORDINATES}
    rows = pa.Table.from_batches([*reader(iter([pa.RecordBatch.from_pydict(columns)]))])
    delta.add(root, table, rows.cast(table.arrow), f"test-{table.name}", 1)
