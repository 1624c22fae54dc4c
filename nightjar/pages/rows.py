"""Alerts as the templates and files of the pages have them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import polars as pl

from nightjar.contracts.alerts import RETRACTED
from nightjar.pages.rendering import plain
from nightjar.rules.allowing import ALLOWED_BY

# Characters at the beginning of a cell that make spreadsheets take it for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_DOWNLOADED = (
    "event_time", "severity", "rule_id", "rule_version", "group", "text", "measures", "kind", "revision", "source",
    "cause", "muted", "overflow", "label", "snoozed_until", "event_id", "alert_id",
)  # fmt: skip


def row_of(alert: Mapping[str, Any], judged: tuple[str, str | None] | None = None) -> dict[str, Any]:
    """An alert as the template of a row takes it. judged: outcome and cause that a night found."""
    at = alert["event_time"]
    measures = json.loads(alert["measures"]) if isinstance(alert["measures"], str) else alert["measures"]
    return {
        "alert_id": alert["alert_id"],
        "revision": alert["revision"],
        "retracted": alert["kind"] == RETRACTED,
        "rule_id": alert["rule_id"],
        "rule_version": alert["rule_version"],
        "state": alert["rule_state"],
        "severity": alert["severity"],
        "group": group_text(alert["group"]),
        "event_time": datetime.fromisoformat(at) if isinstance(at, str) else at,
        "text": alert["text"],
        "muted": bool(alert["muted"]),
        "allowed_by": measures.get(ALLOWED_BY),
        "overflow": bool(alert.get("overflow")),
        "source": alert.get("source"),
        "cause": alert.get("cause"),
        "label": alert.get("label"),
        "snoozed_until": alert.get("snoozed_until"),
        "outcome": None if judged is None else judged[0],
    }


def group_text(group: str | Mapping[str, Any]) -> str:
    """The values of a group, which may be JSON."""
    values = json.loads(group) if isinstance(group, str) else group
    return " ".join(str(value) for value in values.values())


def with_changes(revisions: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The revisions, each with what of its content changed against the one before: name, then before and after."""
    found: list[dict[str, Any]] = []
    before: dict[str, Any] = {}
    for revision in revisions:
        content = {
            "state": revision["rule_state"],
            "severity": revision["severity"],
            "muted": revision["muted"],
            "text": revision["text"],
            **json.loads(revision["measures"]),
        }
        changes = [
            (name, before[name], value) for name, value in content.items() if name in before and before[name] != value
        ]
        found.append({**revision, "changes": changes})
        before = content
    return found


def csv_of(alerts: pl.DataFrame) -> bytes:
    """The alerts as CSV with a header, which spreadsheets open without running anything."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(_DOWNLOADED)
    for row in alerts.select(_DOWNLOADED).iter_rows():
        cells = (plain(value) for value in row)
        writer.writerow(f"'{cell}" if cell.startswith(_FORMULA) else cell for cell in cells)
    return text.getvalue().encode()
