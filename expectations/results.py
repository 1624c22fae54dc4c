"""Reads a stored validation result of Great Expectations for the data docs: what a page shows of a suite's run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from nightjar.expectations.findings import outcome_of, problem_of
from nightjar.expectations.suites import ROWS

# The member of a result's `meta` that we add; see `about`.
META = "nightjar"

_RUN_NAME = re.compile(r"(\d{4}-\d\d-\d\d)_(.+)", re.DOTALL)
_RANK = {"critical": 0, "warning": 1}


@dataclass(frozen=True)
class ShownExpectation:
    """An expectation in a run."""

    name: str
    sentence: str
    severity: str
    sql: str
    success: bool
    rows: int | None
    """Violating ones; None: it could not be checked, or is not about rows."""
    examples: tuple[Mapping[str, str | None], ...]
    """Some of them."""
    columns: tuple[str, ...]
    """Those of the examples, in order."""
    problem: str

    @property
    def outcome(self) -> str:
        """What came of it, in words."""
        if self.success:
            return "holds"
        return "could not be checked" if self.problem else outcome_of(self.rows)

    def title(self, column: str) -> str:
        """A column of the examples for people."""
        return "rows with this key" if column == ROWS else column


@dataclass(frozen=True)
class ShownResult:
    """A suite's result in a run."""

    suite: str
    day: str
    """The night."""
    run: str
    """The id of the run."""
    at: str
    """When it was checked, ISO 8601."""
    expectations: tuple[ShownExpectation, ...]
    """Broken ones first, the critical ones before the others."""

    def broken(self, severity: str) -> int:
        """How many expectations of this severity do not hold."""
        return sum(not each.success and each.severity == severity for each in self.expectations)

    @property
    def state(self) -> str:
        """`critical` if it stopped the run, `warning` if something else does not hold, or `holds`."""
        return next((severity for severity in _RANK if self.broken(severity)), "holds")

    @property
    def verdict(self) -> str:
        """The state in words."""
        critical, warnings = self.broken("critical"), self.broken("warning")
        found = [f"{critical} critical failed"] if critical else []
        found += [f"{warnings} warning{'' if warnings == 1 else 's'}"] if warnings else []
        return ", ".join(found) or f"all {len(self.expectations)} hold"


def about(day: date, run: str, validation: Mapping[str, Any]) -> dict[str, Any]:
    """What a result's `meta` has of us: the night (ISO 8601), the run's id, and by expectation the columns of its
    examples, whose order Great Expectations does not keep."""
    columns = {each["expectation_config"]["meta"]["name"]: _columns(each["result"]) for each in validation["results"]}
    return {"day": day.isoformat(), "run": run, "columns": {name: of for name, of in columns.items() if of}}


def _columns(result: Mapping[str, Any]) -> list[str]:
    return list({name: None for row in result.get("examples") or () for name in row})


def shown(written: Mapping[str, Any]) -> ShownResult:
    """The result as stored."""
    meta = written["meta"]
    name = str(meta["run_id"]["run_name"])
    # Results of earlier releases have the night in the run's name only.
    old = _RUN_NAME.fullmatch(name)
    given = meta.get(META) or {"day": old[1] if old else "", "run": old[2] if old else name}
    expectations = [_expectation(each, given.get("columns", {})) for each in written["results"]]
    expectations.sort(key=lambda each: (each.success, _RANK.get(each.severity, len(_RANK))))
    at = str(meta["run_id"]["run_time"])
    return ShownResult(written["suite_name"], given["day"], given["run"], at, tuple(expectations))


def _expectation(result: Mapping[str, Any], columns: Mapping[str, Sequence[str]]) -> ShownExpectation:
    config, found = result["expectation_config"], result["result"]
    name = config["meta"]["name"]
    return ShownExpectation(
        name=name,
        sentence=config["kwargs"]["sentence"],
        severity=config.get("severity") or "critical",
        sql=config["kwargs"].get("sql") or "",
        success=bool(result["success"]),
        rows=found.get("observed_value"),
        examples=tuple(found.get("examples") or ()),
        columns=tuple(columns.get(name) or _columns(found)),
        problem=problem_of(result.get("exception_info") or {}),
    )
