"""The stream's clock: the records of the clock topic, which the driver writes and every bucket reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from nightjar.contracts.json_text import ascii_json
from nightjar.contracts.record_type import INT64, Member, RecordType
from nightjar.rules.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP

CLOCK = RecordType(
    "clock",
    "Per stream, a time such that the job has consumed every record that arrived before it.",
    {
        "run_id": Member("the run of the query that it is meant for"),
        "clocks": Member(
            "stream to µs since 1970", schema={"type": "object", "additionalProperties": INT64}, is_json=True
        ),
        "overflow": Member(
            "rule to hours (their begin, µs since 1970) whose further alerts are marked `overflow`",
            schema={"type": "object", "additionalProperties": {"type": "array", "items": INT64}},
            is_json=True,
            optional=True,
        ),
    },
)


@dataclass(frozen=True)
class Clock:
    """One record. run_id: the run of the query that it is meant for; clocks: µs, by stream.

    overflow: by rule, hours (their begin, µs) in which its alerts have reached the cap; of any run.
    """

    run_id: str
    clocks: Mapping[str, int]
    overflow: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def encoded(self) -> bytes:
        """The record's value."""
        overflow = {"overflow": self.overflow} if self.overflow else {}
        return ascii_json({"run_id": self.run_id, "clocks": self.clocks} | overflow)


def read_clock(value: bytes, latest: int = MAX_TIMESTAMP) -> Clock | None:
    """Decode a record of the clock topic, with clocks capped at `latest` (µs); None if it is not a clock.

    Anybody may write to a topic: a record of another shape raises nothing.
    """
    try:
        written = json.loads(value)
        run_id, clocks = written["run_id"], written["clocks"].items()
        overflow = {rule: tuple(hours) for rule, hours in written.get("overflow", {}).items()}
        times = [*(clock for _, clock in clocks), *(hour for hours in overflow.values() for hour in hours)]
        known = [type(time) is int and MIN_TIMESTAMP <= time <= MAX_TIMESTAMP for time in times]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if not isinstance(run_id, str) or not all(known):
        return None
    return Clock(run_id, {stream: min(clock, latest) for stream, clock in clocks}, overflow)
