"""Values of fields that a stream declares `sensitive`: what people and logs are shown in their place.

Sensitive are the field's values, every measure of the field but `count` and `count_distinct`, and what is computed from
these. Records on topics and tables of the lake keep them, but for texts that are made for people: an alert's `text`, a
rejection's `detail`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from nightjar.rules.canonical import canonical
from nightjar.rules.computed import in_order
from nightjar.rules.model import PLACEHOLDER, Rule
from nightjar.rules.names import named_in
from nightjar.rules.streams import Stream

# Of the same length for every value: neither its length nor its last characters are shown, nor whether two are equal.
MASK = "•••"


def sensitive_names(rule: Rule, stream: Stream) -> frozenset[str]:
    """The fields of the rule's stream, and the rule's measures, that are sensitive."""
    found = {*stream.sensitive}
    for name, measure in rule.aggregates.items():
        if measure.field in stream.sensitive and not measure.function.spec.counts:
            found.add(name)
    for name, text in in_order(rule.computed).items():
        if named_in(text, found):
            found.add(name)
    return frozenset(found)


def names_by_stream(rules: Iterable[Rule], streams: Mapping[str, Stream]) -> dict[str, frozenset[str]]:
    """Of each stream with sensitive fields these, and the measures of all its rules that are sensitive."""
    found = {stream.name: stream.sensitive for stream in streams.values() if stream.sensitive}
    for rule in rules:
        if rule.stream in found:
            found[rule.stream] |= sensitive_names(rule, streams[rule.stream])
    return found


def masked(values: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """The values with MASK for those of these names that are not null."""
    return {name: MASK if name in names and value is not None else value for name, value in values.items()}


def alert_text(text: str, rule: Rule, stream: Stream) -> str:
    """An alert's text, or MASK if it was made before a field that it shows was declared sensitive."""
    shown = {match[1] for match in PLACEHOLDER.finditer(rule.description)}
    return MASK if MASK not in text and shown & sensitive_names(rule, stream) else text


def masked_text(text: str | None, names: Collection[str]) -> str | None:
    """A JSON object as text, masked likewise; MASK where it is not a JSON object."""
    if text is None or not names:
        return text
    try:
        written = json.loads(text)
    except (ValueError, RecursionError):
        return MASK
    return canonical(masked(written, names)) if isinstance(written, dict) else MASK
