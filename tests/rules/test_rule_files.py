"""Files of rule messages: each message with the place that a person looks at when it is refused."""

from __future__ import annotations

import pytest

from nightjar.rules.errors import RuleError
from nightjar.rules.foreign.files import MAX_BYTES, messages_of

TEXT = b"1,(active),(who),,(amount),(sum),(>),(50),(20)"


def places(text: bytes) -> list[str]:
    return [place for place, _ in messages_of(text, "f")]


def test_a_file_of_complete_lines_has_a_message_per_line() -> None:
    """Of text or of JSON, also mixed; comments and blank lines count as lines."""
    given = b"# two rules\n\n" + TEXT + b'\n{"ruleId": 2}\n'
    assert messages_of(given, "f") == [("f: line 3", TEXT), ("f: line 4", b'{"ruleId": 2}')]
    assert messages_of(TEXT, "f") == [("f: line 1", TEXT)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"id: a\n", ["f: line 1"]),
        (b"---\nid: a\n---\n---\nid: b\n", ["f: line 2", "f: line 5"]),
        (b"- id: a\n- id: b\n", ["f: line 1", "f: line 2"]),
        (b"rules:\n- id: a\n\n- id: b\n", ["f: line 2", "f: line 4"]),
        (b'{\n"rules": [\n{"id": "a"},\n{"id": "b"}]}', ["f: line 3", "f: line 4"]),
        (b'[\n{"id": "a"},\n{"id": "b"}]', ["f: line 2", "f: line 3"]),
        (b'{"id": "a"}', ["f: line 1"]),
        (b'[\n\t{"id": "a"},\n\t{"id":\t"b"}]', ["f: line 2", "f: line 3"]),
    ],
)
def test_a_message_is_found_by_the_line_on_which_it_begins(text: bytes, expected: list[str]) -> None:
    """In YAML and JSON, of one message or many."""
    assert places(text) == expected


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"", "holds no rule"),
        (b"rules: []\n", "holds no rule"),
        (b"id: [\n", "f"),
        (b" " * (MAX_BYTES + 1), "more than"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(text: bytes, told: str) -> None:
    """As a whole, by its name."""
    with pytest.raises(RuleError, match=told):
        messages_of(text, "f")
