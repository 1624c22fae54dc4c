"""Which version of a rule applies to an event: a function of event time alone, so that stream and batch agree."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from nightjar.rules.allowing import can_allow
from nightjar.rules.errors import Problem, RuleError
from nightjar.rules.over_alerts import counted
from nightjar.rules.states import State
from nightjar.rules.timestamps import after, microseconds

if TYPE_CHECKING:
    from nightjar.rules.actions import Action
    from nightjar.rules.model import Rule


# Effective time of a version that waits: for its shuffle key, or for approval.
NOT_YET = 1 << 62


@dataclass(frozen=True)
class Approval:
    """Who approved a version, and why."""

    author: str
    reason: str


@dataclass(frozen=True)
class Decline:
    """Who declined a version, and why."""

    author: str
    reason: str


@dataclass(frozen=True)
class RuleVersion:
    """A rule as published for the `version`th time (from 1), applying from `effective` (event time, µs UTC) on."""

    rule: Rule
    version: int
    effective: int
    is_proposed: bool = False
    """Whether it lacks an approval (see `nightjar.rules.approval`), and so belongs to no RuleSet."""
    approval: Approval | None = None
    """None where none was asked for."""
    decline: Decline | None = None
    """Of a proposed version that somebody has declined: nobody can approve it any more."""
    named: tuple[RuleVersion, ...] = ()
    """All known versions of the rules whose violations a measure over alerts may count (S23), and of the allow rules
    that may silence its alerts (S24), of each rule in the order of publication: a version means the same in whatever
    RuleSet it is."""

    @property
    def key(self) -> tuple[str, int]:
        """(rule id, version)."""
        return self.rule.id, self.version

    @property
    def waits_for_approval(self) -> bool:
        """Whether it is proposed, and nobody has declined it."""
        return self.is_proposed and self.decline is None


@dataclass(frozen=True)
class Superseded:
    """Which version took the place of another, and from which event time on (µs; None: of a proposal)."""

    by: int
    since: int | None


@dataclass(frozen=True)
class Primed:
    """The history that a version found in the job's state: all events from `since` (event time, µs) on.

    name: of the export of the lake that the job takes in with the answer; empty: its state had that history already.
    """

    since: int
    name: str = ""


class Published(Protocol):
    """What has been published so far: a RuleSet, or a RuleBook, which has the proposed versions too."""

    def of_rule(self, rule_id: str) -> tuple[RuleVersion, ...]:
        """One rule's versions in the order of publication."""

    @property
    def rule_ids(self) -> Iterable[str]:
        """The ids of the rules."""


def next_version(
    earlier: tuple[RuleVersion, ...], rule: Rule, arrival_us: int, activation_delay_us: int = 0
) -> RuleVersion:
    """The version that publishing `rule` creates after its `earlier` ones, effective from the time in the rule, or
    `activation_delay_us` after its arrival.

    Raises:
        RuleError: the id already belongs to a rule of another stream.
    """
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
    effective = microseconds(rule.effective) if rule.effective else after(arrival_us, activation_delay_us)
    return RuleVersion(rule, 1 + len(earlier), effective)


def superseded(version: RuleVersion, versions: Iterable[RuleVersion], at_us: int) -> Superseded | None:
    """Which of the rule's later `versions` had taken the place of `version` by that event time, the first one that did.

    None if an event of that time may still see `version`. It is the other side of `RuleSet.applicable`: of the later
    versions the one that takes effect first, and of several at one time the last published.
    """
    later = [other for other in versions if other.version > version.version and other.effective <= at_us]
    if not later:
        return None
    first = min(later, key=lambda other: (other.effective, -other.version))
    return Superseded(first.version, first.effective)


def latest(versions: Sequence[RuleVersion]) -> RuleVersion | None:
    """The version of a rule that publishing it again would repeat: the newest, or the last one in force where the
    newest was declined (S5.9); None if there is none. versions: all of the rule, in the order of publication."""
    if versions and versions[-1].decline is None:
        return versions[-1]
    return last_in_force(versions)


def last_in_force(versions: Sequence[RuleVersion]) -> RuleVersion | None:
    """The last version of a rule that is more than proposed; None if there is none. versions: as for `latest`."""
    return next((version for version in reversed(versions) if not version.is_proposed), None)


def overtaken(versions: tuple[RuleVersion, ...]) -> list[tuple[RuleVersion, Superseded]]:
    """Of a rule's versions, in the order of publication, the proposed ones that nobody can approve any more because
    another was published (S5.5), and the version that was published next."""
    return [
        (version, Superseded(later.version, None))
        for version, later in pairwise(versions)
        if version.waits_for_approval
    ]


def _with_named(
    version: RuleVersion, versions: Collection[RuleVersion], allowing: Collection[RuleVersion]
) -> RuleVersion:
    """The version with those of the versions that it depends on, beside those that it has. allowing: the allow rules
    among them."""
    named = {other.key: other for other in version.named}
    rules = {other.rule.id for other in allowing if can_allow(other.rule, version.rule)}
    if version.rule.over_alerts:
        rules |= {other.rule.id for other in versions if counted(version.rule, other.rule)}
    if not rules:
        return version
    # all versions of such a rule: where another one applies, those do not
    named |= {other.key: other for other in versions if other.rule.id in rules and other.rule.id != version.rule.id}
    ordered = tuple(replace(named[key], named=()) if named[key].named else named[key] for key in sorted(named))
    return version if ordered == version.named else replace(version, named=ordered)


def with_named(version: RuleVersion, known: Published) -> RuleVersion:
    """The version with what it depends on of what has been published."""
    every = (known.of_rule(rule_id) for rule_id in known.rule_ids)
    others = [other for of_rule in every for other in of_rule if not other.is_proposed]
    return _with_named(version, others, [other for other in others if other.rule.allows])


def naming(version: RuleVersion, ruleset: RuleSet) -> list[RuleVersion]:
    """The newest versions of the rules that depend on where it holds, as they are with it (S23.4, S24.4)."""
    after = RuleSet((*(known for known in ruleset.versions if known.key != version.key), version))
    newest = {known.rule.id: known for known in after.versions}
    return [
        known
        for known in newest.values()
        if known.rule.state.is_evaluated and any(other.key == version.key for other in known.named)
    ]


def living(versions: Sequence[RuleVersion], since: int | None, waits: Sequence[int] = ()) -> tuple[RuleVersion, ...]:
    """Of a rule's versions, in the order of publication, those that apply to some event time at or after `since` (µs;
    None: ever): those not replaced by then. waits: how long before `since` (µs) each still applies, if some do.

    One that waits for its effective time may still get one before those of later versions.
    """
    kept: list[RuleVersion] = []
    earliest_later = None
    for version, wait in zip(reversed(versions), reversed(waits or [0] * len(versions)), strict=True):
        replaced = earliest_later is not None and (
            earliest_later <= version.effective < NOT_YET or (since is not None and earliest_later <= since - wait)
        )
        if not replaced:
            kept.append(version)
        if earliest_later is None or version.effective < earliest_later:
            earliest_later = version.effective
    return tuple(reversed(kept))


def by_rule(versions: Iterable[RuleVersion]) -> dict[str, list[RuleVersion]]:
    """The versions of each rule, in their order."""
    found: dict[str, list[RuleVersion]] = {}
    for version in versions:
        found.setdefault(version.rule.id, []).append(version)
    return found


@dataclass(frozen=True)
class RuleSet:
    """Every version of every rule, in order of publication. Pausing or retiring a rule is a version like any other."""

    versions: tuple[RuleVersion, ...] = ()

    def __post_init__(self) -> None:
        if any(version.rule.names_others for version in self.versions):
            allowing = [version for version in self.versions if version.rule.allows]
            found = tuple(_with_named(version, self.versions, allowing) for version in self.versions)
            object.__setattr__(self, "versions", found)

    def publish(self, rule: Rule, arrival_us: int, activation_delay_us: int = 0) -> RuleSet:
        """This set and one more version; raises as `next_version` does."""
        return RuleSet((*self.versions, next_version(self.of_rule(rule.id), rule, arrival_us, activation_delay_us)))

    def of_stream(self, name: str) -> RuleSet:
        """The versions of the rules on one stream."""
        return RuleSet(tuple(known for known in self.versions if known.rule.stream == name))

    def applicable(self, rule_id: str, event_time_us: int) -> RuleVersion | None:
        """The version that applies at that event time: the last published of those effective by then; None before any.

        The last published has priority over one that takes effect later, so that a rule published with an earlier
        effective time replaces the versions before it.
        """
        for known in reversed(self.of_rule(rule_id)):
            if known.effective <= event_time_us:
                return known
        return None

    def of_rule(self, rule_id: str) -> tuple[RuleVersion, ...]:
        """One rule's versions in the order of publication."""
        return self._by_rule.get(rule_id, ())

    @property
    def rule_ids(self) -> Iterable[str]:
        """The ids of the rules, in the order of their first versions."""
        return self._by_rule.keys()

    @cached_property
    def _by_rule(self) -> dict[str, tuple[RuleVersion, ...]]:
        return {rule_id: tuple(versions) for rule_id, versions in by_rule(self.versions).items()}

    @classmethod
    def of(cls, rules: Iterable[Rule], arrival_us: int) -> RuleSet:
        """The set after publishing `rules` one after the other at `arrival_us`, without activation delay."""
        published = cls()
        for rule in rules:
            published = published.publish(rule, arrival_us)
        return published


def actions_of(versions: Iterable[RuleVersion]) -> dict[tuple[str, int], Action]:
    """The actions that alerts lead to, by rule id and version. Rules on trial (shadow) restrict nobody."""
    return {
        version.key: version.rule.action
        for version in versions
        if version.rule.action is not None and version.rule.state is State.ACTIVE
    }
