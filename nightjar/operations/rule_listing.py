"""The published versions of rules: all of them, those that wait for approval, and those that files differ from."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from nightjar.operations.rule_publishing import in_force
from nightjar.rules.display import changed_lines
from nightjar.rules.model import Rule, State, rule_to_mapping
from nightjar.rules.publishing import Answer
from nightjar.rules.rulebook import RuleBook, effective_text
from nightjar.rules.timestamps import iso_text
from nightjar.rules.versions import RuleVersion, latest
from nightjar.terminal.console import counted


class Waiting(NamedTuple):
    """A version that waits for approval. since: when it was published; effect: what approving it does."""

    rule_id: str
    rule_version: int
    author: str | None
    since: str
    reason: str | None
    effect: str


def waiting(book: RuleBook) -> list[Waiting]:
    """The versions that can be approved, those that have waited longest first."""
    newest = [book.of_rule(rule_id)[-1] for rule_id in book.rule_ids]
    found = [version for version in newest if version.waits_for_approval]
    found.sort(key=lambda version: book.published[version.rule.id, version.version])
    return [
        Waiting(
            version.rule.id,
            version.version,
            version.rule.author,
            iso_text(book.published[version.rule.id, version.version]),
            version.rule.reason,
            _effect(book, version),
        )
        for version in found
    ]


def _effect(book: RuleBook, version: RuleVersion) -> str:
    """What approving a version does, beside the one in force."""
    rule, before = version.rule, in_force(book, version.rule.id)
    if before is None:
        return f"a new rule on {rule.stream}, {rule.state.value}"
    changed = [each for each in changed_lines(before, rule, "") if each[:1] in "+-" and each[:3] not in ("+++", "---")]
    becomes = "" if rule.state is before.rule.state else f"{before.rule.state.value} becomes {rule.state.value}; "
    return f"{becomes}{counted(len(changed), 'changed line')} against version {before.version}"


def changed_rules(book: RuleBook, rules: Sequence[Rule]) -> list[tuple[RuleVersion | None, Rule]]:
    """The rules that are not like the version that publishing them again would repeat, each after that version."""
    newest = [(latest(book.of_rule(rule.id)), rule) for rule in rules]
    return [(version, rule) for version, rule in newest if version is None or version.rule != rule]


def missing_rules(book: RuleBook, rules: Sequence[Rule]) -> list[RuleVersion]:
    """The newest versions of rules that are published, not retired, and not among these."""
    named = {rule.id for rule in rules}
    newest = [version for rule_id in book.rule_ids if (version := latest(book.of_rule(rule_id))) is not None]
    return [each for each in newest if each.rule.id not in named and each.rule.state is not State.RETIRED]


def listed(book: RuleBook, unanswered: set[tuple[str, int]], *, every: bool) -> list[dict[str, Any]]:
    """The versions as JSON objects, and in `applies_from` what a person reads of that.

    every: all versions, not only those that are in force or wait.
    """
    return [_row(book, version, unanswered) for version in (book.every if every else _current(book))]


def _current(book: RuleBook) -> Iterable[RuleVersion]:
    """Of each rule the last version in force, then the newest if it waits for approval, or is all there is."""
    for rule_id in book.rule_ids:
        versions = book.of_rule(rule_id)
        in_force = [version for version in versions if not version.is_proposed][-1:]
        yield from in_force
        yield from [version for version in versions[-1:] if version.waits_for_approval or not in_force]


def _status(book: RuleBook, version: RuleVersion) -> Answer:
    """The job's last answer about a version."""
    name = version.rule.id, version.version
    if name in book.superseded:
        return Answer.SUPERSEDED
    if version.decline is not None:
        return Answer.DECLINED
    if version.is_proposed:
        return Answer.PROPOSED
    if name in book.retired:
        return Answer.RETIRED
    return Answer.ACTIVE if name in book.active else Answer.ACCEPTED


def _row(book: RuleBook, version: RuleVersion, unanswered: set[tuple[str, int]]) -> dict[str, Any]:
    name = version.rule.id, version.version
    approval, effective = version.approval, effective_text(version)
    superseded = book.superseded.get(name)
    decline = version.decline
    if decline is not None:
        applies_from = "never: declined"
    elif version.is_proposed:
        waits = book.of_rule(version.rule.id)[-1] is version
        applies_from = "waiting for approval" if waits else "never: overtaken before it was approved"
    elif name in unanswered:
        applies_from = "waiting for the job to answer"
    else:
        applies_from = f"{effective[:19]}Z" if effective else "waiting for the job to add a shuffle key"
        if superseded is not None and superseded.since is not None:
            applies_from += f"\nuntil {iso_text(superseded.since)[:19]}Z"
    return {
        "rule_id": version.rule.id,
        "rule_version": version.version,
        "state": version.rule.state.value,
        "effective": effective,
        "answered": name not in unanswered,
        "status": None if name in unanswered else _status(book, version).value,
        "superseded_by": None if superseded is None else superseded.by,
        "superseded_from": None if superseded is None or superseded.since is None else iso_text(superseded.since),
        "published": iso_text(book.published[name]),
        "author": version.rule.author,
        "reason": version.rule.reason,
        "proposed": version.is_proposed,
        "approved": None if approval is None else iso_text(book.answered[name]),
        "approver": None if approval is None else approval.author,
        "approval_reason": None if approval is None else approval.reason,
        "declined": None if decline is None else iso_text(book.declined[name]),
        "declined_by": None if decline is None else decline.author,
        "decline_reason": None if decline is None else decline.reason,
        "rule": rule_to_mapping(version.rule),
        "applies_from": applies_from,
    }
