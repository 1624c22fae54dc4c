"""What an alert was, as somebody found out: the records of the labels topic, keyed by what they are about.

A label is about one alert, or about an event and with it about all its alerts. Of several the one that became known
last counts, and each counts from when it became known on: whoever asks how good a rule was at an earlier time must not
use what was found out later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from nightjar.contracts.json_text import json_text
from nightjar.contracts.label_values import Label
from nightjar.contracts.record_type import Member, RecordType, Row
from nightjar.rules.errors import SettingsError, shortened
from nightjar.rules.model import MAX_AUTHOR, MAX_REASON
from nightjar.rules.types import Kind

_ALERT_ID = re.compile(r"[0-9a-f]{32}")
_SOURCE = re.compile(r"[a-z][a-z0-9_-]{0,39}")
# Longest lines of text, in characters.
_LONGEST = {"author": MAX_AUTHOR, "reason": MAX_REASON}


def _is_label(written: Mapping[str, Any], row: Row) -> bool:
    texts = all(isinstance(written.get(name), str) for name in ("stream", "event_id", "label", "author", "source"))
    return (
        texts
        and row["label"] in [label.value for label in Label]
        and isinstance(written.get("alert_id", ""), str)
        and (row["alert_id"] is None or _ALERT_ID.fullmatch(row["alert_id"]) is not None)
        and _SOURCE.fullmatch(row["source"]) is not None
        and bool(row["author"].strip())
        and isinstance(written.get("reason", ""), str)
        and all(_is_line(row[name] or "", name) for name in _LONGEST)
        and row["known_at"] is not None
    )


def _is_line(text: str, name: str) -> bool:
    return text.isprintable() and len(text) <= _LONGEST[name]


LABEL = RecordType(
    "label",
    "What an alert, or an event with all its alerts, was. Of several the one with the latest `known_at` counts.",
    {
        "alert_id": Member(
            "the alert; a record without it is about every alert of the event",
            schema={"pattern": "^[0-9a-f]{32}$"},
            optional=True,
        ),
        "stream": Member("the event's stream"),
        "event_id": Member("the event"),
        "label": Member("what it was", schema={"enum": [label.value for label in Label]}),
        "reason": Member(f"why: one line of at most {MAX_REASON} characters", optional=True),
        "author": Member(f"who says so: one line of at most {MAX_AUTHOR} characters"),
        "source": Member(
            "where it comes from, as `analyst` or `chargeback`", schema={"pattern": "^[a-z][a-z0-9_-]{0,39}$"}
        ),
        "known_at": Member("when it became known: it counts from then on", Kind.TIMESTAMP),
    },
    _is_label,
)


def label_record(
    *,
    stream: str,
    event_id: str,
    label: str,
    author: str,
    source: str,
    known_at: int,
    alert_id: str | None = None,
    reason: str | None = None,
) -> Row:
    """The record of a label. known_at: µs.

    Raises:
        SettingsError: it would not be read as a label.
    """
    if label not in [each.value for each in Label]:
        raise _wrong("label", label, f"is not one of {', '.join(Label)}", "Choose one of them")
    if _SOURCE.fullmatch(source) is None:
        remedy = "Write up to 40 lower-case letters, digits, - and _, a letter first"
        raise _wrong("source", source, "is not the name of a source", remedy)
    if not author.strip():
        raise SettingsError("is missing", where="author", remedy="Say who says so")
    for name, text in (("author", author), ("reason", reason or "")):
        if not _is_line(text, name):
            raise _wrong(name, text, "is not a line of text", f"Write one of at most {_LONGEST[name]} characters")
    row: Row = {"alert_id": alert_id, "stream": stream, "event_id": event_id, "label": label, "reason": reason or None}
    return LABEL.record(row | {"author": author, "source": source, "known_at": known_at})


def _wrong(name: str, found: str, what: str, remedy: str) -> SettingsError:
    return SettingsError(what, where=f"{name} {shortened(found, 200)}", remedy=remedy)


def message(record: Row) -> tuple[bytes, bytes]:
    """Key and value as bytes."""
    key = record.get("alert_id") or json_text([record["stream"], record["event_id"]])
    return key.encode(), json_text(record).encode()
