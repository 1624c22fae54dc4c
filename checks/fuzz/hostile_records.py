"""Generates hostile records for nightjar's own topics from a seed: damaged genuine records, and garbage.

A forged record that conforms to its schema is not detected (docs/reference/security.md), so records are generated again
until they do not conform.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from structlog.testing import capture_logs

from checks.fuzz.hostile_messages import ANSWERS, CLOCKS, MESSAGES
from nightjar.configuration.settings import Settings
from nightjar.contracts.clock import read_clock
from nightjar.contracts.rule_status import is_failure, read_answer
from nightjar.kafka.readers import KafkaRecord
from nightjar.lake.json_topics import JsonReader
from nightjar.lake.tables import ALERTS, LATE_EVENTS, PROGRESS, RULE_STATUS
from nightjar.operations.job_watch import JobState
from nightjar.rules.timestamps import MAX_TIMESTAMP
from nightjar.terminal.alert_lines import alert_of

_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    1.5,
    -0.0,
    2**31,
    2**53 + 1,
    2**63,
    2**64,
    -(2**63),
    10**400,
    1e308,
    "",
    "x",
    "0",
    "-1",
    "NaN",
    "2026-01-20T12:00:00Z",
    "2026-01-20T12:00:00",
    "9999-12-31T23:59:59.999999Z",
    "\ud800",
    "\x00",
    "0001-01-01T00:00:00+18:00",
    "\x1b[2J",
    "\u202e",
    "a" * 70_000,
    "../../etc/passwd",
    "'; DROP TABLE alerts; --",
    "[/x][conceal]",
    [],
    {},
    [[]],
    [None],
    {"": None},
    {"a": {"b": {"c": []}}},
    [1, "2", {"3": 4}],
    float("nan"),
    float("inf"),
)
_GARBAGE = (*ANSWERS, *CLOCKS, *(m for m in MESSAGES if m is None or len(m) < 100_000))


class HostileRecords:
    """A source of records for some topics. honest: for each topic, values that were read off it; none is empty."""

    def __init__(self, settings: Settings, honest: Mapping[str, Sequence[bytes]], rng: random.Random) -> None:
        self._honest = {topic: [*values] for topic, values in honest.items()}
        self._rng = rng
        self._is_believed: dict[str, Callable[[bytes], bool]] = {
            settings.clock_topic: lambda value: read_clock(value, MAX_TIMESTAMP) is not None,
            settings.rule_status_topic: _is_answer,
            settings.job_progress_topic: _is_report,
            settings.alerts_topic: _is_alert,
            settings.late_events_topic: lambda value: JsonReader(LATE_EVENTS).reads(value),
        }

    def record(self, topic: str) -> bytes | None:
        """A value that the topic's readers must reject; None: a tombstone."""
        believed = self._is_believed.get(topic, lambda _: False)
        while True:
            value = self._made(topic)
            if not believed(value or b""):
                return value

    def _made(self, topic: str) -> bytes | None:
        rng = self._rng
        kind = rng.random()
        if kind < 0.1:
            return rng.choice(_GARBAGE)
        if kind < 0.15:
            topic = rng.choice([*self._honest])
        honest = rng.choice(self._honest[topic])
        return self._damaged(honest) if kind < 0.3 else self._changed(honest)

    def _damaged(self, value: bytes) -> bytes:
        """With some bytes cut, changed or repeated."""
        at, rng = self._rng.randrange(len(value) + 1), self._rng
        end = min(len(value), at + rng.randrange(8))
        return rng.choice((value[:at], value[:at] + rng.randbytes(3) + value[end:], value[:end] + value[at:]))

    def _changed(self, value: bytes) -> bytes:
        """With another value, or without a key, in some place or several."""
        written = json.loads(value)
        for _ in range(self._rng.choice((1, 1, 1, 2, 5))):
            self._change(written)
        return json.dumps(written, ensure_ascii=self._rng.random() < 0.5).encode("utf-8", "surrogatepass")

    def _change(self, written: dict[str, Any]) -> None:
        rng, held, inside = self._rng, written, True
        while inside and held:
            name = rng.choice([*held])
            inside = isinstance(held[name], dict) and bool(held[name]) and rng.random() < 0.7
            if inside:
                held = held[name]
            elif rng.random() < 0.2:
                del held[name]
            else:
                held[name] = deepcopy(rng.choice(_VALUES))  # another change may go into it


def _is_answer(value: bytes) -> bool:
    return read_answer(value) is not None or is_failure(value) or JsonReader(RULE_STATUS).reads(value)


def _is_report(value: bytes) -> bool:
    """Also offsets that the lake would accept, and reports of other releases, which need not be rejected."""
    state = JobState()
    with capture_logs():
        state.take(_as_read(value))
    row = JsonReader(PROGRESS).row(value)
    return not state.skipped.counts or any(row.get(name) is not None for name in ("consumed", "began"))


def _is_alert(value: bytes) -> bool:
    return JsonReader(ALERTS).reads(value) or alert_of(_as_read(value)) is not None


def _as_read(value: bytes) -> KafkaRecord:
    return KafkaRecord("topic", 0, 0, None, value, 0, None, 0)
