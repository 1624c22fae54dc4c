"""Errors of rule files as annotations of a pull request, in the form that GitHub Actions reads from standard output.

How it works: an annotation stands at the line that `nightjar.rules.problem_lines` finds for the problem.
"""

from pathlib import Path

from nightjar.rules.errors import NightjarError, Problem, printable, problems_of
from nightjar.rules.problem_lines import lines_of


def github_annotations(file: Path, refusal: NightjarError, level: str = "error") -> list[str]:
    """One `::error …` line per problem. file: the file that has them; level: error or warning."""
    problems = problems_of(refusal)
    try:
        text = file.read_bytes()
    except OSError:
        text = b""
    return [
        f"::{level} file={_escaped(str(file), ':,')},line={number},title={_title(problem)}::{_escaped(str(problem))}"
        for number, problem in zip(lines_of(text, problems), problems, strict=True)
    ]


def _title(problem: Problem) -> str:
    return _escaped(problem.place.partition(", ")[0] or "nightjar rules", ":,")


def _escaped(text: str, more: str = "") -> str:
    """As a command of GitHub has it: what ends a line, or a property, is written out."""
    shown = "\n".join(printable(line) for line in text.split("\n"))
    for character in f"%\n{more}":
        shown = shown.replace(character, f"%{ord(character):02X}")
    return shown
