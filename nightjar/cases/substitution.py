"""A case with rules as they are in files now, instead of those that are written in it."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from nightjar.cases.documents import json_text
from nightjar.cases.model import Case
from nightjar.rules.model import Rule, rule_to_mapping

# What a case says of its own version of a rule, and the file has no say in.
_OF_CASE = ("effective", "author", "reason", "state")


def with_rules(case: Case, rules: Iterable[Rule]) -> tuple[Case, list[str]]:
    """The case with the rules of these ids replaced, and which were.

    A rule that the case publishes more than once is left as it is: the case is about the change.
    """
    given = {rule.id: rule_to_mapping(rule) for rule in rules}
    published = Counter(name for step in case.steps for message in step.rules if (name := _id_of(message)) is not None)
    wanted = {name: rule for name, rule in given.items() if published[name] == 1}
    steps = [replace(step, rules=tuple(_replaced(message, wanted) for message in step.rules)) for step in case.steps]
    return replace(case, steps=tuple(steps)), sorted(wanted)


def _replaced(message: bytes, rules: Mapping[str, Mapping[str, object]]) -> bytes:
    name = _id_of(message)
    if name is None or name not in rules:
        return message
    written = json.loads(message)
    own = {key: written[key] for key in _OF_CASE if key in written}
    return json_text({**rules[name], **own}).encode()


def _id_of(message: bytes) -> str | None:
    """The id of the rule that a message publishes in our own form; None of any other message."""
    try:
        written = json.loads(message)
    except ValueError:
        return None
    found = written.get("id") if isinstance(written, dict) and "control" not in written else None
    return found if isinstance(found, str) else None
