"""Allow rules: `allows: [card-velocity, tag:geo]`, which rules' alerts one silences where it holds (S24)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from nightjar.rules.named_rules import is_named, mismatch
from nightjar.rules.states import State

if TYPE_CHECKING:
    from nightjar.rules.model import Rule

# What stands for all rules of the stream and group-by.
EVERY_RULE = "*"
# What an alert's measures call the allow rule that silences it; a silenced alert has this member, and no other has it.
ALLOWED_BY = "allowed_by"
# Only a key looks like this in an alert's measures: in a text, quotes are escaped.
MEMBER = f'"{ALLOWED_BY}":'
# Keys of a rule that has alerts.
OF_ALERTS = (
    "shadow_of",
    "unless",
    "reset_after_alert",
    "severity",
    "score",
    "tags",
    "action",
    "revisions",
    "mute",
)


def unallowed(naming: Rule, other: Rule) -> tuple[str, str] | None:
    """Why an allow rule cannot silence a rule, and the remedy; None if it can. A tag, and `*`, do not stand for such a
    rule."""
    if (unlike := mismatch(naming, other)) is not None:
        return unlike
    if ALLOWED_BY in other.measures:
        return f"has a measure called {ALLOWED_BY}", "Give the measure another name"
    return None


def can_allow(naming: Rule, other: Rule) -> bool:
    """Whether a rule is an allow rule that silences another one where it holds."""
    if not naming.allows:
        return False
    stands = EVERY_RULE in naming.allows or is_named(naming.allows, other)
    return stands and unallowed(naming, other) is None


def allows_alerts(naming: Rule, other: Rule) -> bool:
    """The same, where both are in the states that they have: what is on trial has no part in alerts that are not."""
    is_running = naming.state is State.ACTIVE or naming.state is other.state is State.SHADOW
    return is_running and can_allow(naming, other)


def allowed_by(measures: str | None) -> str | None:
    """The id of the allow rule that silences an alert; None if none does. measures: the alert's, as JSON."""
    if measures is None or MEMBER not in measures:
        return None
    found = json.loads(measures).get(ALLOWED_BY)
    return found if isinstance(found, str) else None
