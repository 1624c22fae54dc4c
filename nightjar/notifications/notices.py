"""What a target is told of an alert: that it exists, that it was retracted, or nothing.

A target is told of an alert once, with the values of the revision that is the latest when the message is made; further
revisions of values are not sent. It is told of a retraction only if it was told of the alert before, and of the alert
again if that comes back. An alert that an allow rule silences afterwards is as good as retracted. What is retracted
while it waits is never sent. Of a snoozed alert no target is told, but a target that has it is told of its retraction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nightjar.contracts.alerts import ANNOUNCED, BACKFILL, RETRACTED
from nightjar.rules.allowing import ALLOWED_BY
from nightjar.rules.states import State


@dataclass(frozen=True)
class Seen:
    """The latest revision of an alert that was read."""

    revision: int
    is_correction: bool

    def is_behind(self, record: Mapping[str, Any]) -> bool:
        """Whether a record of the alert counts instead: it has a higher revision, or the same and is the backfill's."""
        return (record["revision"], record["source"] == BACKFILL) > (self.revision, self.is_correction)


def is_due(record: Mapping[str, Any], *, told: bool, snoozed: bool = False) -> bool:
    """Whether a target is to be told of this latest record of an alert.

    told: whether it has the alert: a message that says so was made, and none since that withdraws it.
    """
    return is_withdrawal(record) if told else is_worth_it(record) and not snoozed


def is_withdrawal(record: Mapping[str, Any]) -> bool:
    """Whether it takes an alert back: it is a retraction, or an allow rule silences the alert."""
    return record["kind"] == RETRACTED or (record["muted"] and ALLOWED_BY in record["measures"])


def is_worth_it(record: Mapping[str, Any]) -> bool:
    """Whether a target that does not have the alert would be told of it, unless it is snoozed."""
    return (
        record["kind"] == ANNOUNCED
        and record["rule_state"] == State.ACTIVE
        and not record["muted"]
        and record.get("overflow") is not True
    )
