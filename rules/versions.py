"""Which version of a rule an event sees: a matter of event time alone, so that stream and batch agree (law 5)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rules.errors import Problem, RuleError
from rules.timestamps import microseconds

if TYPE_CHECKING:
    from rules.model import Rule


@dataclass(frozen=True)
class RuleVersion:
    """A rule as published for the `version`th time (from 1), applying from `effective` (event time, µs UTC) on."""

    rule: Rule
    version: int
    effective: int


@dataclass(frozen=True)
class RuleSet:
    """Every version of every rule in the order of publication. A paused or retired rule is a version like any other."""

    versions: tuple[RuleVersion, ...] = ()

    def publish(self, rule: Rule, arrival_us: int, activation_delay_us: int = 0) -> RuleSet:
        """This set and one version more, effective as the rule says, or `activation_delay_us` after its arrival.

        Raises RuleError where the id already belongs to a rule of another stream.
        """
        earlier = self.of_rule(rule.id)
        if earlier and earlier[0].rule.stream != rule.stream:
            raise RuleError(
                [
                    Problem(
                        "stream",
                        rule.stream,
                        f"version 1 of this rule is on stream {earlier[0].rule.stream}",
                        "A rule keeps its stream: retire it, and publish the new one under another id",
                    )
                ],
                where=f"rule {rule.id}",
            )
        version = 1 + len(earlier)
        effective = arrival_us + activation_delay_us if rule.effective is None else microseconds(rule.effective)
        return RuleSet((*self.versions, RuleVersion(rule, version, effective)))

    def of_stream(self, name: str) -> RuleSet:
        """The versions of the rules on one stream."""
        return RuleSet(tuple(known for known in self.versions if known.rule.stream == name))

    def applicable(self, rule_id: str, event_time_us: int) -> RuleVersion | None:
        """The version an event of that time sees: the last published of those effective by then; None before any.

        The last published wins over one that takes effect later, so that a rule published with an earlier effective
        time replaces what was announced before it.
        """
        for known in reversed(self.of_rule(rule_id)):
            if known.effective <= event_time_us:
                return known
        return None

    def of_rule(self, rule_id: str) -> tuple[RuleVersion, ...]:
        """One rule's versions in the order of publication."""
        return tuple(known for known in self.versions if known.rule.id == rule_id)

    @classmethod
    def of(cls, rules: Iterable[Rule], arrival_us: int) -> RuleSet:
        """The set after publishing `rules` one after the other at `arrival_us`, without activation delay."""
        published = cls()
        for rule in rules:
            published = published.publish(rule, arrival_us)
        return published
