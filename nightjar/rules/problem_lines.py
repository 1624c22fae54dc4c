"""The lines of a text of rules that problems are about.

How it works: a problem's place (`rule burst, measures.spent.over`) is looked up in the text's YAML, and its line is
that of the innermost part that exists there. A text that is no YAML has the line in the problem's message.
"""

import re
from collections.abc import Iterable

import yaml

from nightjar.rules.errors import Problem

_RULE = re.compile(r"rule (?:number (?P<number>[0-9]+)|(?P<id>.+?))(?:, (?P<path>.*))?", re.DOTALL)
_LINE = re.compile(r"\(line ([0-9]+), column [0-9]+\)")


def lines_of(text: bytes, problems: Iterable[Problem]) -> list[int]:
    """The line, from 1, of each of the problems that `nightjar.rules.model.parse_rules` has found in the text."""
    found = [*problems]
    # Problems of rules are found in what could be read only, so that no text is composed here that was refused as such.
    items = _items(text) if any(_RULE.fullmatch(problem.place) for problem in found) else []
    return [_line(items, problem) for problem in found]


def _items(text: bytes) -> list[yaml.Node]:
    """The rules of a text as nodes with their lines; none where it is not YAML."""
    try:
        documents = list(yaml.compose_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
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
