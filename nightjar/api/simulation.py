"""Cases: rules and events step by step, with what is expected of them (docs/reference/cases.md)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nightjar.api.inputs import is_file_name
from nightjar.cases import Case, CaseError, CaseOutcome, Difference, check, load_case, read_case
from nightjar.cases.simulate import simulate as simulated


@dataclass(frozen=True)
class Simulation:
    """The result of a case.

    outcome: the records of each topic; differences: from what the case expects, none if it expects nothing.
    """

    title: str
    outcome: CaseOutcome
    differences: list[Difference]

    @property
    def alerts(self) -> list[dict[str, Any]]:
        """The alerts as a consumer has them in the end, before the night: of each the latest revision."""
        return self.outcome.final

    @property
    def as_expected(self) -> bool:
        """Whether nothing differs."""
        return not self.differences


def simulate(case: Path | str | Case) -> Simulation:
    """Run a case on the engine, without Kafka and Spark, as `nightjar simulate` does.

    case: a file (a `Path`, or text that ends in .yaml, .yml or .json), or the text of a case as YAML.

    Raises:
        CaseError, DeclarationError: the case cannot be read.
    """
    if isinstance(case, Path) or (isinstance(case, str) and is_file_name(case)):
        case = load_case(Path(case))
    elif isinstance(case, str):
        case = read_case(case, "case")
    elif not isinstance(case, Case):
        raise CaseError(f"is a {type(case).__name__}", where="case", remedy="Give the path of a file, or its text")
    outcome = simulated(case)
    return Simulation(case.title, outcome, check(case.expect, outcome))
