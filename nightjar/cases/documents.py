"""A YAML loader for case files: numbers keep their digits, mappings know the lines of their keys, and `no` is text.

Plain scalars are null, true, false, JSON numbers, points in time, and text. Anchors, aliases and `<<` work, so that a
rule need not be repeated; duplicate keys are an error. The loader of rules (nightjar/rules/documents.py) is stricter,
because anybody may send a rule.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterator
from typing import Any, cast

import yaml

from nightjar.rules.errors import NightjarError
from nightjar.rules.timestamps import parse_timestamp

# Limit on nodes, counting every use of an alias: a few bytes of YAML can expand to an endless structure.
MAX_NODES = 200_000
MAX_NESTING = 50
_TAG = "tag:yaml.org,2002:"


class CaseError(NightjarError):
    """A case file is not valid."""


class Number(str):
    """A number as its literal text, which is a JSON number."""

    __slots__ = ()


class Stamp(str):
    """A point in time written without quotes, as its text; `instant` is µs since 1970 in UTC."""

    __slots__ = ()

    @property
    def instant(self) -> int:
        """The instant; UTC if there is no zone, as in YAML."""
        found = parse_timestamp(self, zone_required=False)
        if found is None:
            raise ValueError(self)
        return found


class YamlMapping(dict[str, Any]):
    """A mapping; `line` is its first line, `lines` the line of each key, both counted from 1."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.lines: dict[str, int] = {}


class _CaseLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  PyYAML's way to replace the resolvers


for _kind, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", [*"~nN", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    ("float", r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", [*"-0123456789"]),
    ("merge", r"<<", ["<"]),
):
    _CaseLoader.add_implicit_resolver(f"{_TAG}{_kind}", re.compile(rf"(?:{_pattern})\Z", re.ASCII), _first)


def read_yaml(text: str | bytes, origin: str) -> Any:
    """The data of a YAML text with one document: Table, list, str, Number, Stamp, bytes (`!!binary`), bool, None."""
    try:
        documents = list(yaml.compose_all(text, Loader=_CaseLoader))
    except yaml.MarkedYAMLError as failure:
        mark = failure.problem_mark or failure.context_mark
        where = f"{origin}: line {mark.line + 1}" if mark else origin
        raise CaseError(f"is not YAML: {failure.problem}", where=where, remedy=_remedy(failure)) from None
    except (yaml.YAMLError, UnicodeDecodeError) as failure:
        what = str(failure).splitlines()[0]
        raise CaseError(f"is not YAML: {what}", where=origin, remedy="A case is a YAML file in UTF-8") from None
    except RecursionError:
        raise CaseError("is nested too deep", where=origin, remedy="A case is about six levels deep") from None
    if len(documents) != 1:
        raise CaseError(f"has {len(documents)} documents", where=origin, remedy="Write one case per file")
    return _Construction(origin).value(documents[0], 0)


def _remedy(failure: yaml.MarkedYAMLError) -> str:
    if "alias" in f"{failure.context} {failure.problem}":
        return 'Put a star in quotes, as in count: "*"'
    return "Put predicates and raw messages in quotes, and mind the indentation"


class _Construction:
    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.nodes = 0

    def error(self, node: yaml.Node, what: str, remedy: str) -> CaseError:
        return CaseError(what, where=f"{self.origin}: line {node.start_mark.line + 1}", remedy=remedy)

    def value(self, node: yaml.Node, depth: int) -> Any:
        self.nodes += 1
        if self.nodes > MAX_NODES or depth > MAX_NESTING:
            raise self.error(node, "is too large or refers to itself", f"A case has at most {MAX_NODES} values")
        if isinstance(node, yaml.MappingNode):
            return self.table(node, depth)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, depth + 1) for item in node.value]
        return self.scalar(cast("yaml.ScalarNode", node))

    def table(self, node: yaml.MappingNode, depth: int) -> YamlMapping:
        table = YamlMapping(node.start_mark.line + 1)
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            value = self.value(value_node, depth + 1)
            if key_node.tag == f"{_TAG}merge":
                for other in self.merged(value_node, value):
                    merged = {**other, **merged}
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise self.error(key_node, "a key is not a name", "Write name: value")
            key = str(key_node.value)
            if key in table:
                raise self.error(key_node, f"duplicate key {key!r}", "Keep one of them")
            table[key] = value
            table.lines[key] = key_node.start_mark.line + 1
        for key, value in merged.items():
            table.setdefault(key, value)
        return table

    def merged(self, node: yaml.Node, value: Any) -> Iterator[YamlMapping]:
        for table in value if isinstance(value, list) else [value]:
            if not isinstance(table, YamlMapping):
                raise self.error(node, "<< takes a mapping", "Refer to one with an anchor, as in <<: *rule")
            yield table

    def scalar(self, node: yaml.ScalarNode) -> Any:
        text: str = node.value
        match node.tag.removeprefix(_TAG):
            case "null":
                return None
            case "bool":
                return text.lower() == "true"
            case "float":
                return Number(text)
            case "binary":
                try:
                    return base64.b64decode("".join(text.split()), validate=True)
                except binascii.Error:
                    raise self.error(node, "is not base64", "Write bytes as !!binary and base64") from None
            case "str" | "merge":
                is_stamp = not node.style and parse_timestamp(text, zone_required=False) is not None
                return Stamp(text) if is_stamp else text
        raise self.error(node, f"unknown tag {node.tag}", "Write it without a tag")


def json_text(value: Any) -> str:
    """A value as JSON, in which numbers keep their digits."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k, ensure_ascii=False)}: {json_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(json_text(item) for item in value) + "]"
    if isinstance(value, bytes):
        return json.dumps(base64.b64encode(value).decode())
    return json.dumps(str(value) if isinstance(value, str) else value, ensure_ascii=False)
