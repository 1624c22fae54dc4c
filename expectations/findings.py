"""The results of the gate: whether each expectation holds, with example rows that violate it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from nightjar.rules.errors import NightjarError, printable

_SHOWN = 20  # expectations that an error lists


@dataclass(frozen=True)
class Finding:
    """The result of one expectation of one suite."""

    suite: str
    expectation: str
    sentence: str
    severity: str
    success: bool
    observed: int | None
    """How many rows violate it; None: it could not be determined (`problem` has the reason), or is not about rows."""
    examples: tuple[Mapping[str, str | None], ...] = ()
    """At most five of these rows, column to text."""
    problem: str = ""

    @property
    def critical(self) -> bool:
        """Whether it stops publication."""
        return self.severity == "critical" and not self.success

    @classmethod
    def of(cls, suite: str, result: Mapping[str, Any]) -> Finding:
        """That of Great Expectations' result in JSON."""
        config, found = result["expectation_config"], result["result"]
        return cls(
            suite=suite,
            expectation=config["meta"]["name"],
            sentence=config["kwargs"]["sentence"],
            severity=config["severity"],
            success=bool(result["success"]),
            observed=found.get("observed_value"),
            examples=tuple(found.get("examples", ())),
            problem=problem_of(result["exception_info"] or {}),
        )

    def __str__(self) -> str:
        if self.success:
            outcome = "holds"
        elif self.problem:
            outcome = f"could not be checked: {printable(self.problem)}"
        else:
            outcome = outcome_of(self.observed)
        lines = [f"{self.suite}, {self.expectation} ({self.sentence}): {outcome}"]
        lines += [f"    {', '.join(f'{k}={_shown(v)}' for k, v in row.items())}" for row in self.examples]
        return "\n".join(lines)


@dataclass(frozen=True)
class Checked:
    """One suite's findings. validation: Great Expectations' own result in plain JSON types, for the data docs."""

    suite: str
    findings: tuple[Finding, ...]
    validation: dict[str, Any] = field(repr=False)

    @property
    def success(self) -> bool:
        """Whether every critical expectation holds."""
        return not any(finding.critical for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """Convert to plain JSON types; `from_json` is the inverse."""
        return asdict(self)

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> Checked:
        """Restore what `as_json` wrote."""
        findings = (Finding(**{**found, "examples": tuple(found["examples"])}) for found in written["findings"])
        return cls(written["suite"], tuple(findings), written["validation"])


class VerdictError(NightjarError):
    """A check failed and would fail again: a person has to act."""


class GateError(VerdictError):
    """The run must not be published. `findings` are the critical expectations that do not hold."""

    def __init__(self, findings: Iterable[Finding], *, remedy: str) -> None:
        self.findings = tuple(findings)
        listed = [f"- {finding}" for finding in self.findings[:_SHOWN]]
        if len(self.findings) > _SHOWN:
            listed.append(f"- and {len(self.findings) - _SHOWN} more")
        counted = f"{len(self.findings)} critical expectation{'s do' if len(self.findings) > 1 else ' does'} not hold"
        super().__init__("\n".join([counted, *listed, ""]), where="the gate", remedy=remedy)

    def __str__(self) -> str:
        return f"{self.where}: {self.what}{self.remedy}"


def refuse(checked: Iterable[Checked], *, remedy: str = "The staged data is kept for inspection") -> None:
    """Raise GateError if a critical expectation does not hold."""
    broken = [finding for each in checked for finding in each.findings if finding.critical]
    if broken:
        raise GateError(broken, remedy=remedy)


def by_severity(checked: Iterable[Checked]) -> dict[str, dict[str, int]]:
    """Severity to how many of its expectations held and how many were broken."""
    counted: dict[str, dict[str, int]] = {}
    for finding in (finding for each in checked for finding in each.findings):
        counted.setdefault(finding.severity, {"held": 0, "broken": 0})["held" if finding.success else "broken"] += 1
    return counted


def outcome_of(observed: int | None) -> str:
    """What came of an expectation that does not hold. observed: how many rows violate it; None: it is not about rows"""
    return "does not hold" if observed is None else f"violated by {observed:,} row{'' if observed == 1 else 's'}"


def problem_of(raised: Mapping[str, Any]) -> str:
    """The first line of the exception; for metrics Great Expectations returns one such mapping per metric."""
    if "raised_exception" not in raised:
        return next((found for each in raised.values() if (found := problem_of(each))), "")
    message = str(raised.get("exception_message") or "").strip()
    return message.splitlines()[0][:500] if message else ""


def _shown(value: str | None) -> str:
    # An event's text may contain line breaks and escape sequences, and this goes to logs and terminals.
    return "NULL" if value is None else printable(value)
