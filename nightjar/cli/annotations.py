"""Errors of rule files as annotations of a pull request, in the form that GitHub Actions reads from standard output.

How it works: a problem's place (`rule burst, measures.spent.over`) is looked up in the file's YAML, and its annotation
stands at the line of the innermost part that exists there.
"""

import re
from pathlib import Path

import yaml

from nightjar.rules.errors import NightjarError, Problem, RuleError, printable

_RULE = re.compile(r"rule (?:number (?P<number>[0-9]+)|(?P<id>.+?))(?:, (?P<path>.*))?", re.DOTALL)
_LINE = re.compile(r"\(line ([0-9]+), column [0-9]+\)")


def github_annotations(file: Path, refusal: NightjarError, level: str = "error") -> list[str]:
    """One `::error …` line per problem. file: the file that has them; level: error or warning."""
    problems = refusal.problems if isinstance(refusal, RuleError) else [Problem("", "", refusal.what, refusal.remedy)]
    items = _items(file)
    return [
        f"::{level} file={_escaped(str(file), ':,')},line={_line(items, problem)},title={_title(problem)}"
        f"::{_escaped(str(problem))}"
        for problem in problems
    ]


def _title(problem: Problem) -> str:
    return _escaped(problem.place.partition(", ")[0] or "nightjar rules", ":,")


def _escaped(text: str, more: str = "") -> str:
    """As a command of GitHub has it: what ends a line, or a property, is written out."""
    shown = "\n".join(printable(line) for line in text.split("\n"))
    for character in f"%\n{more}":
        shown = shown.replace(character, f"%{ord(character):02X}")
    return shown


def _items(file: Path) -> list[yaml.Node]:
    """The rules of a file as nodes with their lines; none where it is not YAML."""
    try:
        documents = list(yaml.compose_all(file.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except (OSError, yaml.YAMLError, UnicodeDecodeError, RecursionError):
        return []
    found: list[yaml.Node] = []
    for document in documents:
        inner = _member(document, "rules") if isinstance(document, yaml.MappingNode) else None
        node = document if inner is None else inner
        found += node.value if isinstance(node, yaml.SequenceNode) else [node]
    return found


def _member(node: yaml.Node, key: str) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode) and key.isdigit() and int(key) < len(node.value):
        return node.value[int(key)]  # type: ignore[no-any-return]
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for name, value in node.value if name.value == key), None)


def _line(items: list[yaml.Node], problem: Problem) -> int:
    """The line, from 1, that a problem is about."""
    found = _RULE.fullmatch(problem.place)
    if found is None:
        line_in_text = _LINE.search(problem.message)
        return int(line_in_text[1]) if line_in_text else 1
    if found["number"]:
        node = items[int(found["number"]) - 1] if int(found["number"]) <= len(items) else None
    else:
        node = next((each for each in items if getattr(_member(each, "id"), "value", None) == found["id"]), None)
    if node is None:
        return 1
    line: int = node.start_mark.line + 1
    for key in (found["path"] or "").split("."):
        names = node.value if isinstance(node, yaml.MappingNode) else []
        line = next((name.start_mark.line + 1 for name, _ in names if name.value == key), line)
        node = _member(node, key)
        if node is None:
            break
    return line
