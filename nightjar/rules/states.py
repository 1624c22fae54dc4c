"""The state of a rule, its severity, and what revises its alerts. Separate from the model, which takes half a second
to import.
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Active: alerts; shadow: alerts are marked as trial; paused: no alerts; retired: no state."""

    ACTIVE = "active"
    SHADOW = "shadow"
    PAUSED = "paused"
    RETIRED = "retired"

    @property
    def is_evaluated(self) -> bool:
        """Whether rules in this state are evaluated."""
        return self in (State.ACTIVE, State.SHADOW)


class Severity(StrEnum):
    """The severity of an alert."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


class Revisions(StrEnum):
    """Which changes of an alert are announced: each, or only whether it holds."""

    VALUES = "values"
    VERDICT = "verdict"
