"""Case files, which test rules: rules and events step by step, with the expected results.

docs/reference/cases.md describes the format. A host runs a `Case` and returns a `CaseOutcome`; `simulate` runs it on
the engine alone.
"""

from nightjar.cases.case_files import find_cases, load_case, read_case
from nightjar.cases.checking import Difference, Mismatch, check
from nightjar.cases.documents import CaseError
from nightjar.cases.model import Case, CaseOutcome, ExpectedOutcome, Message, Step

__all__ = [
    "Case",
    "CaseError",
    "CaseOutcome",
    "Difference",
    "ExpectedOutcome",
    "Message",
    "Mismatch",
    "Step",
    "check",
    "find_cases",
    "load_case",
    "read_case",
]
