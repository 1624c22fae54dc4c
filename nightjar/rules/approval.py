"""Four eyes: which messages approve or decline a version that was proposed, and who may send them.

How it works: where approvals are asked for, a message on `rules` makes a version that is only proposed. It takes effect
when a second person approves it: {"control": "approve", "rule": "card-velocity", "version": 3, "author": "bob",
"reason": "..."}. Only the newest version of a rule can be approved, so that versions take effect in their order. With
"decline" in the place of "approve" the version is declined: nobody can approve it any more. Anybody may do that, also
its author, since it changes nothing that is in force.

Known limitation: a name is what the message claims. Names are compared without regard to case, to spaces at the ends or
doubled, and to compatibility forms of characters; letters of other alphabets that look alike are different names.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nightjar.rules.errors import Problem, RuleError, printable, shortened
from nightjar.rules.model import MAX_AUTHOR, MAX_REASON, PROVENANCE, Rule, parse_rule, rule_to_mapping
from nightjar.rules.names import did_you_mean
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import after, microseconds
from nightjar.rules.versions import NOT_YET, Approval, Decline, Published, RuleVersion

APPROVE = "approve"
DECLINE = "decline"
_NOUNS = {APPROVE: "an approval", DECLINE: "a decline"}
_KEYS = ("control", "rule", "version", *PROVENANCE)
_LONGEST = {"author": MAX_AUTHOR, "reason": MAX_REASON}


def proposed(version: RuleVersion) -> RuleVersion:
    """The version as a proposal, which takes no effect.

    Raises:
        RuleError: it names no author, or no reason.
    """
    rule = version.rule
    missing = [key for key in PROVENANCE if not (getattr(rule, key) or "").strip()]
    if missing:
        remedy = "Somebody else has to approve it, and must know its author and reason"
        raise RuleError(
            [Problem(key, "", "is missing, and approvals are required", remedy) for key in missing],
            where=f"rule {rule.id}",
        )
    return RuleVersion(rule, version.version, NOT_YET, is_proposed=True)


def waits_for(version: RuleVersion) -> str:
    """What a proposed version waits for."""
    command = f"nightjar rules approve {version.rule.id} --version {version.version}"
    return f"waits for approval by somebody other than {version.rule.author}: {command}"


def approved(
    known: Published,
    written: Mapping[str, Any],
    arrival: int,
    streams: Mapping[str, Stream],
    activation_delay: int = 0,
) -> RuleVersion:
    """The version that a message approves, with its effective time and approval.

    It applies from `activation_delay` (µs) after the approval's arrival (µs), or from the rule's own effective time if
    that is later.

    Raises:
        RuleError: the approval is not valid; it has everything that is wrong.
    """
    found, author, reason, problems = _decided(known, written, APPROVE)
    if found is not None and author and same_person(author, found.rule.author or ""):
        remedy = "Ask somebody else to approve it"
        what = f"{author} is the author of version {found.version}, and nobody approves a version of their own"
        problems.append(Problem("author", repr(author), what, remedy))
    if problems or found is None:
        raise RuleError(problems)
    # the streams may be declared otherwise by now
    parse_rule(rule_to_mapping(found.rule), streams, accepted=True)
    effective = after(arrival, activation_delay)
    if found.rule.effective is not None:
        effective = max(effective, microseconds(found.rule.effective))
    return RuleVersion(found.rule, found.version, effective, approval=Approval(author, reason))


def declined(known: Published, written: Mapping[str, Any]) -> RuleVersion:
    """The version that a message declines, with who did it and why.

    Raises:
        RuleError: the message is not valid; it has everything that is wrong.
    """
    found, author, reason, problems = _decided(known, written, DECLINE)
    if problems or found is None:
        raise RuleError(problems)
    return replace(found, decline=Decline(author, reason))


def same_person(one: str, other: str) -> bool:
    """Whether two names are one person's, as far as names show."""
    return _folded(one) == _folded(other)


def is_approval(rule: Rule, approval: Approval) -> bool:
    """Whether an approval is one that may make the rule take effect."""
    return bool(approval.author.strip()) and not same_person(approval.author, rule.author or "")


def _folded(name: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def _decided(
    known: Published, written: Mapping[str, Any], control: str
) -> tuple[RuleVersion | None, str, str, list[Problem]]:
    """The version that a message approves or declines, the author and reason of the message, and what is wrong with
    these.

    Raises:
        RuleError: it has unknown keys, or names no published rule.
    """
    if unknown := [key for key in written if key not in _KEYS]:
        what, remedy = f"is not a key of {_NOUNS[control]}", f"Keys are {', '.join(_KEYS)}"
        raise RuleError([Problem(str(unknown[0]), "", what, remedy)])
    versions = known.of_rule(str(written.get("rule")))
    if not versions:
        remedy = did_you_mean(str(written.get("rule")), list(known.rule_ids), "Rules are")
        raise RuleError([Problem("rule", repr(written.get("rule")), "is not a published rule", remedy)])
    found, problems = _version(written.get("version"), versions, control)
    author, reason = (_line(written.get(key), key, problems, control) for key in PROVENANCE)
    return found, author, reason, problems


def _version(
    number: object, versions: tuple[RuleVersion, ...], control: str
) -> tuple[RuleVersion | None, list[Problem]]:
    """The version to approve or decline, or what is wrong with the number."""
    newest, rule_id = versions[-1], versions[-1].rule.id
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= newest.version:
        remedy = f"The newest version of {rule_id} is {newest.version}"
        return None, [Problem("version", shortened(repr(number), 40), "is not a version of the rule", remedy)]
    found = versions[number - 1]
    if not found.waits_for_approval:
        what = "took effect without an approval" if found.approval is None else f"{found.approval.author} approved it"
        remedy = "Each version is approved or declined once"
        if found.decline is not None:
            what, remedy = f"{found.decline.author} declined it", "Publish it again"
        if newest.waits_for_approval:
            remedy = f"Version {newest.version} waits for approval"
        return None, [Problem("version", str(number), what, remedy)]
    if found is not newest:
        remedy = "Publish it again" if control == APPROVE else "It never takes effect"
        if newest.waits_for_approval:
            remedy = f"{control.capitalize()} version {newest.version}"
        return None, [Problem("version", str(number), f"version {newest.version} was published since", remedy)]
    return found, []


def _line(text: object, key: str, problems: list[Problem], control: str) -> str:
    """The line of text under `key`; adds a problem if it is missing or invalid."""
    most = _LONGEST[key]
    if text is None or (isinstance(text, str) and not text.strip()):
        problems.append(Problem(key, "", "is missing", f"Name who {control}s it, and why"))
    elif not isinstance(text, str) or not text.isprintable() or len(text) > most:
        found = printable(shortened(str(text), 60))
        problems.append(Problem(key, repr(found), "is not a line of text", f"Write at most {most} characters"))
    else:
        return text
    return ""
