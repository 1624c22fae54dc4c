"""Masks the values of sensitive fields in records of the alerts topic, before they are shown."""

from collections.abc import Mapping
from typing import Any

from nightjar.configuration.settings import Settings
from nightjar.kafka.rule_topics import rule_book
from nightjar.rules.masking import MASK, alert_text, masked, sensitive_names
from nightjar.rules.model import Rule
from nightjar.rules.rulebook import RuleBook
from nightjar.rules.streams import Stream


class AlertMasks:
    """Knows which values of an alert are sensitive: by the rules, which are read when one is unknown."""

    def __init__(self, settings: Settings, streams: Mapping[str, Stream]) -> None:
        self._settings, self._streams = settings, streams
        self._book: RuleBook | None = None
        self._is_needed = any(stream.sensitive for stream in streams.values())
        self._unknown: set[tuple[str, int]] = set()

    def masked(self, record: dict[str, Any]) -> dict[str, Any]:
        """The alert's record without sensitive values. Of a rule that is not known nothing is shown but its id.

        Raises:
            KafkaError: the rules cannot be read.
        """
        stream = self._streams.get(record["stream"])
        if not (stream.sensitive if stream is not None else self._is_needed):
            return record
        group, measures = record["group"], record["measures"]
        rule = self.rule(record["rule_id"], record["rule_version"])
        if stream is None or rule is None:
            return record | {"group": masked(group, group), "measures": masked(measures, measures), "text": MASK}
        names = sensitive_names(rule, stream)
        text = alert_text(record["text"], rule, stream)
        return record | {"group": masked(group, names), "measures": masked(measures, names), "text": text}

    def rule(self, rule_id: str, version: int) -> Rule | None:
        """A published version of a rule; None if it is not known.

        Raises:
            KafkaError: the rules cannot be read.
        """
        found = self._known(rule_id, version)
        if found is None and (rule_id, version) not in self._unknown:
            self._unknown.add((rule_id, version))  # whoever forges alerts must not have the rules read for each
            self._book = rule_book(self._settings, self._streams)
            found = self._known(rule_id, version)
        return found

    def _known(self, rule_id: str, version: int) -> Rule | None:
        versions = () if self._book is None else self._book.of_rule(rule_id)
        return next((each.rule for each in versions if each.version == version), None)
