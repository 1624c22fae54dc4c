"""Case files, which test rules: rules and events step by step, with the expected results.

docs/reference/cases.md describes the format. A host runs a `Case` and returns an `Outcome`; `simulate` runs it on the
engine alone.
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
