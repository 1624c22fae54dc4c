"""The action of a rule: an alert restricts its group for a time."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StrictStr, field_validator

from nightjar.rules.durations import MICROSECONDS, Duration, format_duration
from nightjar.rules.names import RULE_ID

MAX_RESTRICTION = 400 * MICROSECONDS["d"]


class Action(BaseModel):
    """An action as a rule writes it: `{restrict: block_customer, for: 24h}`. duration: µs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    restrict: Annotated[
        StrictStr,
        Field(
            pattern=f"^{RULE_ID}$",
            description="What consumers are to do with the group, by a name that they know, such as `block_customer`: "
            "lower-case letters, digits, `.`, `_`, `-`; at most 100 characters.",
        ),
    ]
    duration: Annotated[
        Duration,
        Field(
            alias="for",
            description="How long from the event's time, such as `24h`; at most " + format_duration(MAX_RESTRICTION),
        ),
    ]

    @field_validator("duration")
    @classmethod
    def _bounded(cls, duration: int) -> int:
        if not 0 < duration <= MAX_RESTRICTION:
            found, most = format_duration(duration), format_duration(MAX_RESTRICTION)
            raise ValueError(
                f"{found} is not a valid time to restrict for. It must be longer than 0 and at most {most}"
            )
        return duration
