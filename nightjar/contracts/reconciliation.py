"""What a night finds about an alert: its outcome, and the cause where the stream and the truth differ."""

from enum import StrEnum


class Outcome(StrEnum):
    """The outcome of an alert. One that the stream itself retracted and the truth does not have has none."""

    MATCHED = "matched"
    """The stream and the truth have it, with the same content."""
    MISSED = "missed"
    """Only the truth has it."""
    RETRACTED = "retracted"
    """Only the stream has it."""
    REVISED = "revised"
    """Both have it, with different content."""
    WITHDRAWN = "withdrawn"
    """An earlier run left it to the stream, and now neither side has it."""


class Cause(StrEnum):
    """Why the stream and the truth differ about an alert; see docs/explanation/backfill.md."""

    LATE_EVENT = "late_event"
    REFERENCE_CHANGED = "reference_changed"
    COLD_START = "cold_start"
    RULE_PROPAGATION = "rule_propagation"
    STREAM_DOWN = "stream_down"
    SETTINGS_CHANGED = "settings_changed"
    DUPLICATE_CONFLICT = "duplicate_conflict"
    FORGOTTEN = "forgotten"
    UNEXPLAINED = "unexplained"
