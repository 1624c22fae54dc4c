"""Records of our own topics as rows: whatever anybody wrote there is a row."""

import pyarrow as pa
import pytest

from checks.fuzz.hostile_messages import ANSWERS
from nightjar.lake.json_topics import JsonReader
from nightjar.lake.tables import (
    ALERTS,
    LABELS,
    LATE_EVENTS,
    PROGRESS,
    QUARANTINE,
    RESTRICTIONS,
    RULE_STATUS,
    SNOOZES,
    Table,
)
from nightjar.rules.types import TIMESTAMP


@pytest.mark.parametrize(
    "table",
    [ALERTS, LABELS, LATE_EVENTS, PROGRESS, QUARANTINE, RESTRICTIONS, RULE_STATUS, SNOOZES],
    ids=lambda table: table.name,
)
def test_what_is_no_record_of_ours_is_kept_as_it_came(table: Table) -> None:
    """Half a surrogate pair, numbers out of range, depth and garbage: a row each, in order."""
    rows = len(ANSWERS)
    batch = pa.RecordBatch.from_pydict(
        {
            "value": pa.array(ANSWERS, pa.binary()),
            "partition": pa.array([0] * rows, pa.int32()),
            "offset": pa.array(range(rows), pa.int64()),
            "arrival_time": pa.array([0] * rows, TIMESTAMP.arrow),
            "arrival_date": pa.array([0] * rows, pa.date32()),
        }
    )
    found = pa.Table.from_batches(JsonReader(table)(iter([batch])))
    assert found.column("offset").to_pylist() == list(range(rows))
    originals = found.column("original").to_pylist()
    assert all(kept in (None, value or b"") for kept, value in zip(originals, ANSWERS, strict=True))
    assert originals[ANSWERS.index(b"\xff")] == b"\xff"
    if table is ALERTS:
        assert originals[ANSWERS.index(b'{"alert_id": "\\ud800"}')] is not None
