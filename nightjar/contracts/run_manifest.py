"""The manifest of a backfill run: the rows of the lake's table `runs`, one for each end of a run.

JSON columns are stored as text. Manifests of other releases can be read: what they did not write is None.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from typing import Any

from nightjar.contracts.record_type import Member, RecordType, Row
from nightjar.rules.timestamps import from_microseconds, microseconds
from nightjar.rules.types import Kind


class RunState(StrEnum):
    """How a run ended."""

    FINISHED = "finished"
    FAILED = "failed"
    DRY_RUN = "dry run"


_OBJECT = {"type": "object"}

RUN_MANIFEST = RecordType(
    "run_manifest",
    "What a run of the backfill was requested to do, what it read and counted, and how it ended.",
    {
        "run_id": Member("the run; a repeated run has several manifests"),
        "day": Member("the day that it evaluated", schema={"format": "date"}),
        "state": Member("how it ended", schema={"enum": [state.value for state in RunState]}),
        "started_at": Member("when it pinned what it reads, by its host's clock", Kind.TIMESTAMP),
        "finished_at": Member("when it ended", Kind.TIMESTAMP),
        "cut": Member("arrivals before it counted; null where it read nothing", Kind.TIMESTAMP, nullable=True),
        "only_rules": Member(
            "the rules it was limited to; null for all", schema={"type": "array"}, is_json=True, nullable=True
        ),
        "only_groups": Member(
            "field to the values it was limited to; null for all", schema=_OBJECT, is_json=True, nullable=True
        ),
        "versions": Member("table to the Delta version that was read", schema=_OBJECT, is_json=True),
        "rules": Member(
            "rule id and version, joined by a space, to its effective time; null while it waits",
            schema=_OBJECT,
            is_json=True,
        ),
        "counts": Member("what its stages counted", schema=_OBJECT, is_json=True),
        "seconds": Member("how long each stage took", schema=_OBJECT, is_json=True),
        "failure": Member("of a failed run: why; of a finished run: which alerts were held back", nullable=True),
    },
)


@dataclass(frozen=True)
class RunManifest:
    """The manifest of a run."""

    run_id: str
    day: date
    state: RunState
    started_at: int
    finished_at: int
    cut: int | None = None
    """`started_at`, `finished_at` and `cut`: µs."""
    only_rules: tuple[str, ...] = ()
    only_groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    versions: Mapping[str, int] = field(default_factory=dict)
    rules: Mapping[tuple[str, int], str | None] = field(default_factory=dict)
    """By id and version the effective time (ISO 8601)."""
    counts: Mapping[str, Any] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    failure: str | None = None

    def row(self) -> Row:
        """Its row."""
        rules = {f"{rule_id} {version}": effective for (rule_id, version), effective in self.rules.items()}
        return {
            "run_id": self.run_id,
            "day": self.day,
            "state": self.state.value,
            "started_at": from_microseconds(self.started_at),
            "finished_at": from_microseconds(self.finished_at),
            "cut": None if self.cut is None else from_microseconds(self.cut),
            "only_rules": json.dumps(self.only_rules) if self.only_rules else None,
            "only_groups": json.dumps(dict(self.only_groups)) if self.only_groups else None,
            "versions": json.dumps(dict(self.versions)),
            "rules": json.dumps(rules),
            "counts": json.dumps(dict(self.counts)),
            "seconds": json.dumps(dict(self.seconds)),
            "failure": self.failure,
        }


def read_manifest(row: Mapping[str, Any]) -> RunManifest | None:
    """The manifest that a row of the table holds; None if the row is invalid."""
    try:
        day = row["day"]
        if not isinstance(day, date):
            return None
        return RunManifest(
            str(row["run_id"]),
            day,
            RunState(row["state"]),
            microseconds(row["started_at"]),
            microseconds(row["finished_at"]),
            None if row["cut"] is None else microseconds(row["cut"]),
            tuple(json.loads(row["only_rules"] or "[]")),
            {name: tuple(values) for name, values in _object(row["only_groups"]).items()},
            _object(row["versions"]),
            {_version(name): effective for name, effective in _object(row["rules"]).items()},
            _object(row["counts"]),
            _object(row["seconds"]),
            row["failure"],
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _object(text: str | None) -> dict[str, Any]:
    written = json.loads(text or "{}")
    if not isinstance(written, dict):
        raise TypeError("not a JSON object")
    return written


def _version(name: str) -> tuple[str, int]:
    rule_id, _, version = name.rpartition(" ")
    return rule_id, int(version)
