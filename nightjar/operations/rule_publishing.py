"""Prepares rule messages for sending, and sends them: what `nightjar rules` publishes, controls and decides on."""

import getpass
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from nightjar.configuration.settings import Settings
from nightjar.contracts.rule_messages import approval_message, control_message, decline_message, rule_message
from nightjar.contracts.rule_status import ShownStatus
from nightjar.kafka import rule_topics
from nightjar.rules.errors import NightjarError
from nightjar.rules.model import Rule, State, parse_rule
from nightjar.rules.publishing import Answer, judge
from nightjar.rules.rulebook import RuleBook
from nightjar.rules.versions import RuleVersion

Message = Mapping[str, Any]


class PreparedMessage(NamedTuple):
    """A message, and the version that it makes."""

    message: Message
    made: RuleVersion


def publishing(book: RuleBook, rule: Rule, author: str | None, reason: str | None) -> Message | None:
    """The message that publishes a rule, by its own author and for its own reason unless they are given.

    None if the newest version is like that.
    """
    if rule_topics.unchanged(book, rule):
        return None
    message = rule_message(rule) | _provenance(author or rule.author, reason or rule.reason)
    return rule_message(parse_rule(message, book.streams))


def controlling(
    settings: Settings,
    book: RuleBook,
    control: str,
    rule_id: str,
    effective: str | None,
    *,
    author: str | None,
    reason: str | None,
) -> PreparedMessage | None:
    """The message that pauses, resumes, shadows or retires a rule; None if its newest version is in that state already.

    Raises:
        NightjarError: the job would reject it.
    """
    message = control_message(control, rule_id, effective) | _provenance(author, reason)
    return judged(settings, book, message, f"{control} {rule_id}")


def judged(settings: Settings, book: RuleBook, message: Message, doing: str) -> PreparedMessage | None:
    """A message with the version that it makes; None if the newest version is like that. doing: for the error.

    Raises:
        NightjarError: the job would reject it.
    """
    made, status = judge(book, message, 0, book.streams, approvals=settings.approvals)
    if status.answer is Answer.REJECTED:
        raise NightjarError("\n".join(status.reasons), where=doing)
    return None if made is None else PreparedMessage(message, made)


def approving(
    settings: Settings, book: RuleBook, rule_id: str, version: int | None, *, author: str | None, reason: str | None
) -> PreparedMessage:
    """The message that approves a version, by default the newest. Without a reason it is not for sending.

    Raises:
        NightjarError: a reason is given for no version, or the job would reject the approval.
    """
    if version is None and reason is not None:
        remedy = f"Look with `nightjar rules approve {rule_id}`, and name the version that you have seen: --version"
        raise NightjarError("no version is named", where=f"approve {rule_id}", remedy=remedy)
    if version is None:
        versions = book.of_rule(rule_id)
        version = versions[-1].version if versions else 1
    who = _provenance(author, None).get("author", "")
    message = approval_message(rule_id, version, who, reason or "to be given")
    made, status = judge(book, message, 0, book.streams, approvals=settings.approvals)
    if made is None:
        raise NightjarError("\n".join(status.reasons), where=f"approve {rule_id}")
    return PreparedMessage(message, made)


def declining(
    settings: Settings, book: RuleBook, rule_id: str, version: int, *, author: str | None, reason: str
) -> PreparedMessage:
    """The message that declines a version that waits for approval.

    Raises:
        NightjarError: the job would reject it.
    """
    who = _provenance(author, None).get("author", "")
    message = decline_message(rule_id, version, who, reason)
    made, status = judge(book, message, 0, book.streams, approvals=settings.approvals)
    if made is None:
        raise NightjarError("\n".join(status.reasons), where=f"decline {rule_id}")
    return PreparedMessage(message, made)


def send_and_follow(
    settings: Settings, messages: Sequence[Message], seconds: float, approved: State | None = None
) -> Iterator[ShownStatus]:
    """Send messages, and yield the job's answers until each is settled; see `Answers.until_settled`."""
    with rule_topics.AnswerReader(settings) as answers:
        rule_topics.send(settings, messages)
        yield from answers.until_settled(messages, seconds, approved)


def in_force(book: RuleBook, rule_id: str) -> RuleVersion | None:
    """The last version of a rule that is not only proposed."""
    return next((known for known in reversed(book.of_rule(rule_id)) if not known.is_proposed), None)


def login_name() -> str | None:
    """Who runs this process; None if the user has no name, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


def _provenance(author: str | None, reason: str | None) -> dict[str, str]:
    """Author and reason as keys of a message; the author defaults to the login name."""
    named = (("author", login_name() if author is None else author), ("reason", reason))
    return {key: text for key, text in named if text}
