"""The columns of a violation. Separate from the engine, which readers of records need not import."""

from __future__ import annotations

import pyarrow as pa

from nightjar.rules.types import INSTANT

ALERT_SCHEMA = pa.schema(
    [
        ("alert_id", pa.string()),
        ("revision", pa.int64()),
        ("kind", pa.string()),
        ("rule_id", pa.string()),
        ("rule_version", pa.int64()),
        ("rule_state", pa.string()),
        ("stream", pa.string()),
        ("group", pa.string()),
        ("event_id", pa.string()),
        ("event_time", INSTANT),
        ("measures", pa.string()),
        ("severity", pa.string()),
        ("text", pa.string()),
        ("muted", pa.bool_()),
    ]
)

# Its columns that hold the text of a JSON object.
JSON_COLUMNS = ("group", "measures")
