"""Read rules that anybody may send into plain data: YAML or JSON, bounded, without references and repeated keys."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import yaml

from nightjar.rules.errors import Problem, RuleError

# Bytes. A rule's text is read within a batch of the stream, and this much YAML takes about a second.
MAX_BYTES = 262_144
# A rule itself is four deep.
MAX_NESTING = 16
# Characters of a number; YAML has forms that take quadratic time to read.
_MAX_NUMBER = 64
_EXAMPLE = "A rule is a mapping: id, stream, group_by, measures, when"


class JsonFloat(float):
    """A number with a point or an exponent, and `text`: its digits as written."""

    text: str

    def __new__(cls, text: str) -> JsonFloat:
        if len(text) > _MAX_NUMBER:
            raise _NumberError
        made = super().__new__(cls, text)
        made.text = text
        return made


def read_documents(text: str | bytes, *, where: str = "") -> list[Any]:
    """The data of a JSON text, or of the documents of a YAML text; RuleError if it is neither."""
    plain = decoded(text, where)
    with _refusing("YAML or JSON", where, plain):
        if plain.lstrip()[:1] in ("{", "["):
            try:
                return _plain([_json(plain)])
            except json.JSONDecodeError:
                pass  # YAML has braces and brackets too
        _refuse_tricks(plain)
        documents = yaml.load_all(plain, Loader=_Loader)
        return _plain([document for document in documents if document is not None])


def read_json(text: str | bytes, *, where: str = "") -> Any:
    """The data of a JSON text; RuleError for anything else."""
    plain = decoded(text, where)
    with _refusing("JSON", where, plain):
        return _plain([_json(plain)])[0]


def unwrapped(documents: list[Any]) -> list[Any]:
    """The rules in a file's documents: each is one rule, a list of rules, or `rules: [...]`."""
    found: list[Any] = []
    for document in documents:
        inner = document["rules"] if isinstance(document, Mapping) and set(document) == {"rules"} else document
        found += inner if isinstance(inner, list) else [inner]
    return found


def _json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_object, parse_int=_json_int, parse_float=JsonFloat)


def decoded(text: str | bytes, where: str = "") -> str:
    """The text, if it is UTF-8 and not too large; RuleError otherwise."""
    size = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        raise refusal(f"has more than {MAX_BYTES} bytes", "Split it into several", where)
    try:
        return text.decode("utf-8") if isinstance(text, bytes) else text
    except UnicodeDecodeError as failure:
        raise refusal(f"is not UTF-8 text: {failure.reason} at byte {failure.start}", _EXAMPLE, where) from None


@contextmanager
def _refusing(form: str, where: str, text: str) -> Iterator[None]:
    """Translate what reading the text as that form raises into the terms of a rule's author."""
    try:
        yield
    except _RepeatedKeyError as failure:
        raise refusal(f"key {failure} is repeated in one mapping", "Keep one of them", where) from None
    except _ReferenceError as failure:
        remedy = 'Put a star in quotes, as in count: "*"'
        raise refusal(f"a reference ({failure}) is not allowed", remedy, where) from None
    except _TagError as failure:
        raise refusal(f"a tag ({failure}) is not allowed", "Leave it out, and put text in quotes", where) from None
    except _NumberError:
        raise refusal("holds a number beyond 64 bits", "Rules need no larger ones; put text in quotes", where) from None
    except UnicodeEncodeError:
        raise refusal("holds half of a surrogate pair, not valid text", "Send whole characters", where) from None
    except yaml.MarkedYAMLError as failure:
        mark = failure.problem_mark or failure.context_mark
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        if mark and _starts_with_tab(text, mark):
            remedy = "Indent with spaces, and put a text that begins with a tab in quotes"
            raise refusal(f"is not {form}: a tab stands where only spaces may{place}", remedy, where) from None
        raise refusal(f"is not {form}: {failure.problem}{place}", _remedy(failure), where) from None
    except (yaml.YAMLError, ValueError, OverflowError) as failure:  # an offset that no zone can have overflows
        raise refusal(f"is not {form}: {failure}", _EXAMPLE, where) from None
    except RecursionError:
        raise refusal("is nested too deep to be a rule", _EXAMPLE, where) from None


def _starts_with_tab(text: str, mark: yaml.Mark) -> bool:
    """Whether a tab is what YAML stumbled over: at the mark, or in the white space before it."""
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    before = line[: mark.column]
    return line[mark.column : mark.column + 1] == "\t" or "\t" in before[len(before.rstrip()) :]


def refusal(what: str, remedy: str, where: str) -> RuleError:
    """An error about a text as a whole."""
    return RuleError([Problem("", "", what, remedy)], where=where)


class _ReferenceError(ValueError):
    def __init__(self, anchor: str | None) -> None:
        super().__init__(f"*{anchor}")


class _TagError(ValueError):
    pass


class _NumberError(ValueError):
    pass


class _RepeatedKeyError(ValueError):
    def __init__(self, key: object) -> None:
        super().__init__(repr(key))


def _plain(documents: list[Any]) -> list[Any]:
    """The documents, if texts are UTF-8, whole numbers fit in 64 bits, and nesting is no deeper than a rule needs."""
    level: list[Any] = documents
    for _ in range(MAX_NESTING + 1):
        below: list[Any] = []
        for value in level:
            if isinstance(value, str):
                value.encode()
            elif isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise _NumberError
            elif isinstance(value, Mapping):
                below += [*value, *value.values()]
            elif isinstance(value, list):
                below += value
        level = below
    if level:
        raise RecursionError
    return documents


def _json_int(text: str) -> int:
    if len(text) > _MAX_NUMBER:
        raise _NumberError
    return int(text)


def _object(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    built: dict[str, Any] = {}
    for key, value in pairs:
        if key in built:
            raise _RepeatedKeyError(key)
        built[key] = value
    return built


def _refuse_tricks(text: str) -> None:
    """Refuses references, with which a short text could expand to an endless structure; deep nesting; and tags, which
    create values of types that no rule has.
    """
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            raise _ReferenceError(event.anchor)
        if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag is not None:
            raise _TagError(event.tag)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_NESTING:
            raise RecursionError


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Plain data only, and no key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                break  # PyYAML reports it, with the place
            if key in keys:
                raise _RepeatedKeyError(key)
            keys.add(key)
        built: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return built


def _number(kind: str) -> None:
    construct = getattr(yaml.SafeLoader, f"construct_yaml_{kind}")

    def bounded(loader: _Loader, node: yaml.ScalarNode) -> Any:
        if len(node.value) > _MAX_NUMBER:
            raise _NumberError
        return construct(loader, node)

    _Loader.add_constructor(f"tag:yaml.org,2002:{kind}", bounded)


_number("int")
_number("float")


def _remedy(failure: yaml.MarkedYAMLError) -> str:
    problem = f"{failure.context} {failure.problem}"  # libyaml and PyYAML differ in which of the two has it
    if "alias" in problem:
        return 'Put a star in quotes, as in count: "*"'
    if "unknown escape character" in problem:
        return "Write a backslash in double quotes twice, or use single quotes"
    if "did not find expected key" in problem or "expected <block end>" in problem:
        return "Put predicates, and texts that begin with a brace, in quotes, and mind the indentation"
    if "mapping values are not allowed" in problem:
        return "Put predicates in quotes, and mind the indentation"
    return _EXAMPLE
