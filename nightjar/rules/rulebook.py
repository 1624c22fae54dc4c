"""The rules a job knows, from the answers on `rule-status`: the versions, and the shuffle key that serves each.

How it works: the driver answers each message of the `rules` topic once (see answering.py). An ACCEPTED answer carries
the rule itself, its version, effective time and shuffle key, so that whoever folds the answers in the order of offsets
gets the same rules: every bucket, the backfill, the command line, after any restart, under any declaration, setting or
release. An event is sent to one bucket per shuffle key; a rule is evaluated where its group-by's shuffle key sends its
events. Entity fields are shuffle keys from the start. A rule whose group-by holds no shuffle key is accepted without an
effective time; once the job runs with a new shuffle key, an ACTIVE answer gives that time. A PROPOSED answer has a
version that waits for approval: it has its number, and belongs to the rules in force once the answer to its approval
ACCEPTED it. A DECLINED answer ends the wait: the version stays what it is, out of force.

What it does not do: read Kafka or its records (contracts.rule_status), or decide anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from nightjar.rules.approval import is_approval
from nightjar.rules.model import Rule
from nightjar.rules.publishing import Answer
from nightjar.rules.retention import waits_for
from nightjar.rules.states import State
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import iso_text
from nightjar.rules.versions import (
    NOT_YET,
    Approval,
    Decline,
    Primed,
    RuleSet,
    RuleVersion,
    Superseded,
    overtaken,
    superseded,
)

WHOLE_STREAM = ""


@dataclass(frozen=True)
class ShuffleKey:
    """Events of a stream are sent to buckets by this field's value; WHOLE_STREAM sends all of them to one."""

    stream: str
    field: str


@dataclass(frozen=True)
class Record:
    """A record of the `rules` or the `rule-status` topic; arrival in µs."""

    offset: int
    arrival: int
    value: bytes


@dataclass(frozen=True)
class Answered:
    """The answer on `rule-status` to a message of `rules`."""

    answer: Answer
    message: int
    """Offset of the message; -1 of an ACTIVE, SUPERSEDED or RETIRED answer, which is about a version."""
    rule_id: str | None
    rule_version: int | None
    effective: int | None
    """µs, None where the version waits for its shuffle key, or for approval."""
    rule: Rule | None = None
    shuffle_key: ShuffleKey | None = None
    """`rule` and `shuffle_key`: of an ACCEPTED answer that made a version, or approved it; a PROPOSED one has no
    shuffle key."""
    approval: Approval | None = None
    decline: Decline | None = None
    superseded: Superseded | None = None
    primed: Primed | None = None
    allowed_lateness: int | None = None
    """Of the stream then, µs."""


@dataclass
class RuleBook:
    """All versions and shuffle keys after the answers received so far."""

    streams: Mapping[str, Stream]
    shuffle_keys: list[ShuffleKey] = field(default_factory=list)
    serving: dict[tuple[str, tuple[str, ...]], ShuffleKey] = field(default_factory=dict)
    answered: dict[tuple[str, int], int] = field(default_factory=dict)
    """(rule id, version) to the arrival (µs) of the answer that made the version take effect, or made its shuffle
    key."""
    published: dict[tuple[str, int], int] = field(default_factory=dict)
    """(rule id, version) to the arrival (µs) of the first answer about it."""
    declined: dict[tuple[str, int], int] = field(default_factory=dict)
    """(rule id, version) to the arrival (µs) of the answer that declined the version."""
    active: set[tuple[str, int]] = field(default_factory=set)
    superseded: dict[tuple[str, int], Superseded] = field(default_factory=dict)
    retired: set[tuple[str, int]] = field(default_factory=set)
    """`active`, `superseded` and `retired`: the versions with that answer."""
    primed: dict[tuple[str, int], Primed] = field(default_factory=dict)
    """The versions that waited for their history."""
    reported: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """By stream, of answers their arrival and the `allowed_lateness` of then, µs."""
    next_offset: int = 0
    """Offset of the next answer."""
    next_message: int = 0
    """Offset of the message after the last one that has an answer."""
    skipped: int = 0
    """Records that were not answers or did not fit."""

    def __post_init__(self) -> None:
        self.shuffle_keys = [ShuffleKey(s.name, entity) for s in self.streams.values() for entity in s.entities]
        self._by_rule: dict[str, list[RuleVersion]] = {}
        self._order: list[tuple[str, int]] = []
        self._ruleset: RuleSet | None = None

    @property
    def ruleset(self) -> RuleSet:
        """All versions that are more than proposed, in the order in which they were accepted."""
        if self._ruleset is None:
            self._ruleset = RuleSet(tuple(self._by_rule[rule_id][number - 1] for rule_id, number in self._order))
        return self._ruleset

    @property
    def rule_ids(self) -> Iterable[str]:
        """The ids of all rules."""
        return self._by_rule.keys()

    def of_rule(self, rule_id: str) -> tuple[RuleVersion, ...]:
        """One rule's versions in the order of publication, also those that are only proposed."""
        return tuple(self._by_rule.get(rule_id, ()))

    @property
    def every(self) -> list[RuleVersion]:
        """All versions in the order of publication, also those that are only proposed."""
        return [self._by_rule[rule_id][number - 1] for rule_id, number in self.published]

    @property
    def waiting(self) -> list[RuleVersion]:
        """The versions that wait for their shuffle key."""
        return [version for version in self.ruleset.versions if version.effective == NOT_YET]

    def wanted(self) -> frozenset[ShuffleKey]:
        """The shuffle keys that versions wait for."""
        return frozenset(self.serving[v.rule.stream, v.rule.group_by] for v in self.waiting)

    def unused(self, clocks: Mapping[str, int]) -> frozenset[ShuffleKey]:
        """The shuffle keys that no entity field is, and whose rules no event on time sees (S5.8), any more or yet.

        clocks: µs, by stream; without that of its stream a shuffle key is in use.
        """
        made = {key for key in self.shuffle_keys if key.field not in self.streams[key.stream].entities}
        for version in self.ruleset.versions if made else ():
            rule = version.rule
            key = self.serving[rule.stream, rule.group_by]
            if key in made and self._needs_key(version) and not self.has_ended(version, clocks.get(rule.stream)):
                made.remove(key)
        return frozenset(made)

    def _needs_key(self, version: RuleVersion) -> bool:
        """Whether the version is evaluated, or only pauses one whose state should be there when it is resumed.

        A rule that has been paused from its beginning needs none: no answer says since when there would be one, so that
        it must be made, and the rule wait for it, once it is resumed.
        """
        if version.rule.state.is_evaluated:
            return True
        stream, group_by = version.rule.stream, version.rule.group_by
        return any(
            before.rule.state.is_evaluated and not before.is_proposed and before.effective != NOT_YET
            for before in self.of_rule(version.rule.id)[: version.version - 1]
            if self.serving.get((stream, before.rule.group_by)) == self.serving[stream, group_by]
        )

    def has_ended(self, version: RuleVersion, clock: int | None) -> bool:
        """Whether no event that is on time by that clock (µs) is evaluated, or will be, because of this version."""
        if clock is None:
            return False
        settled = clock - self.streams[version.rule.stream].allowed_lateness - waits_for(version.rule)
        is_retired = version.rule.state is State.RETIRED and version.effective <= settled
        return is_retired or superseded(version, self.of_rule(version.rule.id), settled) is not None

    def take(self, answer: Answered, arrival: int) -> bool:
        """Take the next answer, which arrived at `arrival` (µs); returns whether it changed anything.

        Of several answers to one message the first counts: a driver that lost an acknowledgement may send one again.
        """
        if answer.answer is Answer.ACTIVE:
            return self._activate(answer, arrival)
        if answer.answer in (Answer.SUPERSEDED, Answer.RETIRED):
            self._note(answer)
            return False
        if answer.message < self.next_message:
            return False
        if answer.decline is not None:
            return self._take_decline(answer, answer.decline, arrival)
        if answer.rule is not None and not self._fits(answer, answer.rule):
            self.skipped += 1
            return False
        self.next_message = answer.message + 1
        if answer.rule is None or answer.rule_version is None:
            return False
        if answer.answer is Answer.PROPOSED:
            self._propose(RuleVersion(answer.rule, answer.rule_version, NOT_YET, is_proposed=True), arrival)
            return True
        if answer.shuffle_key is None:
            return False
        effective = NOT_YET if answer.effective is None else answer.effective
        made = RuleVersion(answer.rule, answer.rule_version, effective, approval=answer.approval)
        self._add(made, answer.shuffle_key, arrival)
        self._note_lateness(answer, made, arrival)
        return True

    def add(self, version: RuleVersion, arrival: int, *, running: Iterable[ShuffleKey]) -> None:
        """Add a version as its answer will, with its shuffle key; it waits where that is not `running`. One that is
        declined takes the place of the proposal."""
        if version.decline is not None:
            self._decline(version, arrival)
            return
        if version.is_proposed:
            self._propose(version, arrival)
            return
        key = self.shuffle_key_of(version.rule)
        waits = version.rule.state.is_evaluated and key not in running
        self._add(replace(version, effective=NOT_YET) if waits else version, key, arrival)

    def shuffle_key_of(self, rule: Rule) -> ShuffleKey:
        """That of the rule's group-by, fixed when first seen: that of the first field with one, else a new one."""
        known = self.serving.get((rule.stream, rule.group_by))
        if known is not None:
            return known
        of_stream = {key.field for key in self.shuffle_keys if key.stream == rule.stream}
        name = next((f for f in rule.group_by if f in of_stream), rule.group_by[0] if rule.group_by else WHOLE_STREAM)
        return ShuffleKey(rule.stream, name)

    def served_by(self, key: ShuffleKey) -> frozenset[tuple[str, ...]]:
        """The group-bys that are evaluated in the buckets of a shuffle key."""
        return frozenset(
            group_by for (stream, group_by), served in self.serving.items() if served == key and stream == key.stream
        )

    def _fits(self, answer: Answered, rule: Rule) -> bool:
        """Whether an answer's version is the rule's next one, or approves the newest, which is proposed."""
        versions = self._by_rule.get(rule.id, [])
        if answer.approval is None:
            return answer.rule_version == 1 + len(versions)
        newest = versions[-1] if versions else None
        return (
            newest is not None
            and newest.waits_for_approval
            and answer.rule_version == newest.version
            and rule == newest.rule
            and is_approval(newest.rule, answer.approval)
        )

    def _propose(self, version: RuleVersion, arrival: int) -> None:
        self._by_rule.setdefault(version.rule.id, []).append(version)
        self.published[version.key] = arrival

    def _take_decline(self, answer: Answered, decline: Decline, arrival: int) -> bool:
        """Take a decline; returns whether it is one of the newest version, which waits for approval."""
        versions = self._by_rule.get(str(answer.rule_id), [])
        if not versions or versions[-1].version != answer.rule_version or not versions[-1].waits_for_approval:
            self.skipped += 1
            return False
        self.next_message = answer.message + 1
        self._decline(replace(versions[-1], decline=decline), arrival)
        return True

    def _decline(self, version: RuleVersion, arrival: int) -> None:
        self._by_rule[version.rule.id][version.version - 1] = version
        self.declined[version.key] = arrival

    def _add(self, version: RuleVersion, key: ShuffleKey, arrival: int) -> None:
        rule = version.rule
        if version.approval is None:
            self._by_rule.setdefault(rule.id, []).append(version)
            self.published[rule.id, version.version] = arrival
        else:
            self._by_rule[rule.id][version.version - 1] = version
        self._order.append((rule.id, version.version))
        self._ruleset = None
        self.answered[rule.id, version.version] = arrival
        if key not in self.shuffle_keys and rule.stream in self.streams:
            self.shuffle_keys.append(key)
        self.serving.setdefault((rule.stream, rule.group_by), key)

    def _in_force(self, answer: Answered) -> RuleVersion | None:
        """The version that an answer is about; None, and counted, if there is none or it is only proposed."""
        versions, number = self._by_rule.get(str(answer.rule_id), []), int(answer.rule_version or 0)
        if not 0 < number <= len(versions) or versions[number - 1].is_proposed:
            self.skipped += 1
            return None
        return versions[number - 1]

    def _note(self, answer: Answered) -> None:
        """Note that a version was superseded or retired, which decides nothing: its effective time, or the version that
        was published after a proposal, already has."""
        versions = self._by_rule.get(str(answer.rule_id), [])
        if answer.superseded is not None and answer.superseded.since is None:
            proposals = [version for version, by in overtaken(tuple(versions)) if by == answer.superseded]
            version = next((found for found in proposals if found.version == answer.rule_version), None)
            self.skipped += version is None
        else:
            version = self._in_force(answer)
        if version is None:
            return
        name = version.key
        if answer.superseded is None:
            self.retired.add(name)
        else:
            self.superseded.setdefault(name, answer.superseded)

    def _activate(self, answer: Answered, arrival: int) -> bool:
        """Whether the answer gives a version that waits its effective time."""
        if (version := self._in_force(answer)) is None:
            return False
        rule_id, number = version.key
        versions = self._by_rule[rule_id]
        self.active.add((rule_id, number))
        if versions[number - 1].effective != NOT_YET or answer.effective is None:
            return False
        versions[number - 1] = replace(versions[number - 1], effective=answer.effective)
        self._ruleset = None
        self.answered[rule_id, number] = arrival
        if answer.primed is not None:
            self.primed[rule_id, number] = answer.primed
        self._note_lateness(answer, versions[number - 1], arrival)
        return True

    def _note_lateness(self, answer: Answered, version: RuleVersion, arrival: int) -> None:
        if answer.allowed_lateness is not None:
            self.reported.setdefault(version.rule.stream, []).append((arrival, answer.allowed_lateness))


def effective_text(version: RuleVersion) -> str | None:
    """The effective time of a version as records write it; None while it waits for its shuffle key, or for approval."""
    return None if version.effective == NOT_YET else iso_text(version.effective)
