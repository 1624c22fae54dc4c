"""Case files: rules and events step by step, and what is expected of them; how people test their rules.

docs/reference/cases.md is the format. A host runs a `Case` and gives back an `Outcome`: `simulate` is the bare
engine.
"""

from nightjar.cases.case_files import find_cases, load_case, read_case
from nightjar.cases.checking import Difference, Mismatch, check
from nightjar.cases.documents import CaseError
from nightjar.cases.model import Case, Expectation, Message, Outcome, Step

__all__ = [
    "Case",
    "CaseError",
    "Difference",
    "Expectation",
    "Message",
    "Mismatch",
    "Outcome",
    "Step",
    "check",
    "find_cases",
    "load_case",
    "read_case",
]
