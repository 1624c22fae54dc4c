"""How far the stream had come, as the lake has it: from a topic that anybody may write to."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lake import stream_state
from lake.tables import PROGRESS
from tests.backfill.payments import fill

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
SOUND = json.dumps({"transactions": {"0": 5, "1": 7}})
BROKEN = [
    "", "{", "[]", "5", '{"transactions": 5}', '{"transactions": {"x": 5}}', '{"transactions": {"0": -1}}',
    '{"transactions": {"0": 1.5}}', '{"transactions": {"0": true}}', '{"transactions": {"0": "5"}}',
    '{"transactions": {"0": 9223372036854775808}}', "[" * 100_000,
]  # fmt: skip


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
