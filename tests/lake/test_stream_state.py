"""How far the stream had come, as the lake has it: from a topic that anybody may write to."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from nightjar.contracts.headers import SENT_AT
from nightjar.contracts.rule_status import fold
from nightjar.ingestion.event_schema import PRIMARY, events_schema
from nightjar.lake import stream_state
from nightjar.lake.json_topics import JsonReader
from nightjar.lake.stream_state import announced
from nightjar.lake.tables import ALERTS, PROGRESS
from nightjar.rules.engine import Engine
from nightjar.rules.engine.ledger import LEDGER_SCHEMA
from nightjar.rules.rulebook import RuleBook, ShuffleKey
from nightjar.rules.streams import streams_from_mapping
from nightjar.streaming.buckets.output_records import alert_records, sent_at_of
from tests.support.answers import answered
from tests.support.payments import fill

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
SOUND = json.dumps({"transactions": {"0": 5, "1": 7}})
BROKEN = [
    "",
    "{",
    "[]",
    "5",
    '{"transactions": 5}',
    '{"transactions": {"x": 5}}',
    '{"transactions": {"0": -1}}',
    '{"transactions": {"0": 1.5}}',
    '{"transactions": {"0": true}}',
    '{"transactions": {"0": "5"}}',
    '{"transactions": {"0": 9223372036854775808}}',
    "[" * 100_000,
]


@pytest.mark.parametrize("name", ["consumed", "began"])
def test_what_is_no_offsets_is_skipped(tmp_path: Path, name: str) -> None:
    """The newest record that has some counts, however many others follow it."""
    read = getattr(stream_state, name)
    words = [json.dumps({"transactions": {"0": 1}}), SOUND, *(BROKEN * 100), None]
    rows = [
        {
            name: word,
            "partition": 0,
            "offset": at,
            "arrival_time": NOON + timedelta(seconds=at),
            "arrival_date": NOON.date(),
        }
        for at, word in enumerate(words)
    ]
    fill(tmp_path, PROGRESS)
    assert read(tmp_path) == {}
    fill(tmp_path, PROGRESS, *rows)
    assert read(tmp_path) == {"transactions": {0: 5, 1: 7}}


def test_what_was_announced_comes_back_word_for_word(tmp_path: Path) -> None:
    """Also where a group has a double: its text is part of the alert's id, and a revision is what changes a text."""
    fields = {"id": "string", "at": "timestamp", "who": "string", "ratio": "double"}
    declared = {"event_id": "id", "event_time": "at", "entities": ["who"], "fields": fields}
    streams = streams_from_mapping({"things": declared}, "here")
    rule = {
        "id": "any",
        "stream": "things",
        "group_by": ["who", "ratio"],
        "when": "TRUE",
        "measures": {"usual": {"avg": "ratio", "over": "1h"}},
        "effective": "2024-01-01T00:00:00Z",
    }
    book = RuleBook(streams)
    for answer in answered(streams, rule):
        fold(book, answer)
    events = pa.Table.from_pylist(
        [
            {
                "id": f"t{ratio}",
                "at": NOON,
                "who": "ann",
                "ratio": ratio,
                "arrival_time": NOON,
                "partition": 0,
                "offset": 0,
                SENT_AT: None,
                PRIMARY: True,
            }
            for ratio in (1e16, 0.1, -0.0, 1e-7, 5e-324)
        ],
        events_schema(streams["things"]),
    )
    advance = Engine(streams["things"], book.ruleset).advance(events)
    reported = alert_records("alerts", advance.alerts, sent_at_of(events, advance.rows.alerts), 0)
    read = [JsonReader(ALERTS).row(value.encode()) for value in reported.column("value").to_pylist()]
    instants = dict.fromkeys(("event_time", "emitted_at", "arrival_time"), NOON)
    fill(tmp_path, ALERTS, *(row | instants | {"arrival_date": NOON.date()} for row in read))
    found = announced(tmp_path, streams["things"], book, ShuffleKey("things", "who"), 0).select(LEDGER_SCHEMA.names)
    assert found.sort_by("event_id").to_pylist() == advance.delta.announcements.sort_by("event_id").to_pylist()
