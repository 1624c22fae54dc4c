"""Files of rule messages, in any form: one message or many, each with the line on which it begins.

How it works: a file whose first lines are complete messages (the Flink demo's text, or JSON on one line) has one per
line; blank lines and those that begin with `#` are skipped. Any other file is YAML or JSON: a message, a list of
messages, `rules: [...]`, or several YAML documents of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from nightjar.rules.documents import decoded, read_documents, refusal, unwrapped
from nightjar.rules.foreign.flink import is_flink_text

# Bytes of a file with one message per line; each message has its own limit.
MAX_BYTES = 16_777_216


def messages_of(text: bytes, where: str) -> list[tuple[str, Any]]:
    """(place, message) of each message in a file's text; a place is `file: line 3`.

    Raises:
        RuleError: the file as a whole cannot be read.
    """
    if len(text) > MAX_BYTES:
        raise refusal(f"has more than {MAX_BYTES} bytes", "Split it into several files", where)
    lines = [(number, line.strip()) for number, line in enumerate(text.split(b"\n"), 1)]
    lines = [(number, line) for number, line in lines if line and not line.startswith(b"#")]
    if lines and all(_is_message(line) for _, line in lines[:2]) and (len(lines) > 1 or not _is_object(lines[0][1])):
        return [(f"{where}: line {number}", line) for number, line in lines]
    found = unwrapped(read_documents(text, where=where))
    if not found:
        raise refusal("holds no rule", "Write one, a list of them, or rules: [...]", where)
    begins = list(_beginnings(decoded(text)))
    if len(begins) != len(found):  # JSON that is not valid YAML, for example with tabs before its keys
        return [(f"{where}: message {number}", message) for number, message in enumerate(found, 1)]
    return [(f"{where}: line {line}", message) for line, message in zip(begins, found, strict=True)]


def _is_object(line: bytes) -> bool:
    return line.startswith(b"{") and line.endswith(b"}")


def _is_message(line: bytes) -> bool:
    return _is_object(line) or is_flink_text(line[:400].decode("utf-8", "replace"))


def _beginnings(text: str) -> Iterator[int]:
    """The line, from 1, on which each message of a YAML text begins."""
    try:
        documents = list(yaml.compose_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except yaml.YAMLError:
        return
    for document in documents:
        node = document
        if isinstance(node, yaml.MappingNode) and [key.value for key, _ in node.value] == ["rules"]:
            node = node.value[0][1]
        if isinstance(node, yaml.SequenceNode):
            yield from (each.start_mark.line + 1 for each in node.value)
        elif node.tag != "tag:yaml.org,2002:null":
            yield node.start_mark.line + 1
