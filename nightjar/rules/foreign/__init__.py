"""Rule messages of other systems: the Flink demo's JSON and text, and Debezium's change events of a table of rules.

Purpose: rules of other systems can be published unchanged.

How it works: `read_message` converts a message to our own form. Only `nightjar.rules.publishing.judge` calls it, so the
job, `nightjar simulate`, `nightjar rules import` and previews of the job's answer agree; the backfill and the lake read
the rule from the answer, which has it in our form.

What it does not do: check the rule. What has no equivalent here is refused, or converted with a note that becomes part
of the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nightjar.rules.documents import decoded, read_json
from nightjar.rules.foreign import debezium, flink
from nightjar.rules.foreign.reading import Forms, MessageError, Reading, refused

# The defaults of the settings.
DEFAULT_FORMS = Forms()

__all__ = ["DEFAULT_FORMS", "Forms", "MessageError", "Reading", "read_message"]


def read_message(message: bytes | str | Mapping[str, Any], forms: Forms) -> Reading:
    """A message of the `rules` topic in our own form.

    Raises:
        RuleError: it has none of the known forms.
    """
    if not isinstance(message, Mapping):
        text = decoded(message)
        if not text.strip():
            raise refused("", "", "is empty: a tombstone holds no rule", "Set Debezium's tombstones.on.delete to false")
        if flink.is_flink_text(text):
            return flink.from_text(text, forms)
        message = read_json(text)
    if not isinstance(message, Mapping):
        raise refused("", repr(message)[:60], "is not a JSON object", "Publish one JSON object per message")
    if debezium.is_envelope(message):
        return debezium.from_envelope(message, forms, lambda inner: _rule(inner, forms))
    return _rule(message, forms)


def _rule(written: Mapping[str, Any], forms: Forms) -> Reading:
    return flink.from_mapping(written, forms) if flink.is_flink(written) else Reading(written)
