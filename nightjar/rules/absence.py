"""What a rule waits for: `unless: {within: 15m, where: COND}`, a violation only where no such event follows (S19)."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StrictStr, field_validator

from nightjar.rules.durations import MICROSECONDS, Duration, format_duration

# A night waits for so long after its day, before it can tell what has not happened.
MAX_WITHIN = MICROSECONDS["d"]
# What an alert's measures call the event time from which on it was known that nothing had followed.
DUE = "due"


class Unless(BaseModel):
    """What must not follow an event for it to be a violation. within: µs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    within: Annotated[
        Duration,
        Field(
            description="How long after the event, end included, as in `15m`; at most "
            f"{format_duration(MAX_WITHIN)}. An event of the same time counts as well."
        ),
    ]
    where: Annotated[
        StrictStr,
        Field(
            description="The events of the group that make it no violation, also those that the rule's own `where` "
            "leaves out."
        ),
    ]

    @field_validator("within")
    @classmethod
    def _bounded(cls, within: int) -> int:
        if not 0 < within <= MAX_WITHIN:
            found, most = format_duration(within), format_duration(MAX_WITHIN)
            raise ValueError(f"{found} is not a valid time to wait. Write more than 0 and at most {most}")
        return within
