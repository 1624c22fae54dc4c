"""Sends rule messages for the commands, and shows the job's answers."""

from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.text import Text

    from nightjar.configuration.settings import Settings
    from nightjar.contracts.rule_status import ShownStatus
    from nightjar.rules.model import Rule
    from nightjar.rules.states import State
    from nightjar.rules.streams import Stream
    from nightjar.terminal.console import SafeConsole


def publish_rules(
    settings: "Settings",
    streams: "Mapping[str, Stream]",
    found: "list[Rule]",
    *,
    author: str | None,
    reason: str | None,
    wait: bool = False,
    timeout: float = 60.0,
    dry_run: bool = False,
) -> None:
    """Publish the rules that are new or changed, and report each. dry_run: show their changes, and send nothing."""
    from nightjar.cli.past_effects import show_past_effects
    from nightjar.cli.rule_files import show_changes
    from nightjar.contracts.rule_messages import rule_message
    from nightjar.kafka import rule_topics
    from nightjar.rules.model import parse_rule
    from nightjar.terminal.console import counted, result_console

    book, _ = rule_topics.expected_book(settings, streams)
    console = result_console()
    changed = []
    for rule in found:
        if rule_topics.unchanged(book, rule):
            newest = book.of_rule(rule.id)[-1]
            waits = ", which waits for approval" if newest.is_proposed else ""
            console.print(f"{rule.id}  unchanged: it is version {newest.version}{waits}", soft_wrap=True)
        else:
            message = rule_message(rule)
            message |= provenance(author or rule.author, reason or rule.reason)
            changed.append(rule_message(parse_rule(message, streams)))
            if dry_run:
                in_force = [version for version in book.of_rule(rule.id) if not version.is_proposed]
                show_changes(console, in_force[-1] if in_force else None, rule, f"{rule.id} as given")
    show_past_effects(settings, streams, book, changed, console)
    if dry_run:
        console.print(f"{counted(len(changed), 'rule')} would be published; nothing was sent")
        return
    send_messages(settings, changed, console, wait=wait, timeout=timeout)


def provenance(author: str | None, reason: str | None) -> dict[str, str]:
    """Author and reason as keys of a message; the author defaults to the login name."""
    import getpass

    if author is None:
        try:
            author = getpass.getuser()
        except (KeyError, OSError):  # the user has no name, as in some containers
            author = None
    return {key: text for key, text in (("author", author), ("reason", reason)) if text}


def send_messages(
    settings: "Settings",
    messages: list[dict[str, Any]],
    console: "SafeConsole",
    *,
    wait: bool,
    timeout: float,
    approved: "State | None" = None,
) -> None:
    """Send rule messages; with `wait` show the job's answers until each is settled. Exits with 1 if one is rejected.

    approved: the state of the version that they approve.
    """
    from nightjar.contracts.rule_messages import rule_of
    from nightjar.kafka import rule_topics
    from nightjar.rules.publishing import Answer

    if not messages:
        return
    if not wait:
        rule_topics.send(settings, messages)
        for message in messages:
            text = f"{rule_of(message)}  published on {settings.rules_topic}"
            console.print(text, soft_wrap=True)
        return
    rejected = False
    with rule_topics.Answers(settings) as answers:
        rule_topics.send(settings, messages)
        for status in answers.until_settled(messages, timeout, approved):
            console.print(_answer(status), soft_wrap=True)
            rejected |= status.answer is Answer.REJECTED
    if rejected:
        raise typer.Exit(1)


def _answer(status: "ShownStatus") -> "Text":
    from rich.text import Text

    from nightjar.rules.publishing import Answer
    from nightjar.terminal.console import line

    version = "" if status.version is None else f" version {status.version}"
    applies = status.effective is not None and status.answer is not Answer.SUPERSEDED
    since = f", applies from {status.effective}" if applies else ""
    reasons = [line(f"    {each}") for reason in status.reasons for each in reason.split("\n")]
    return Text("\n").join([line(f"{status.rule_id}{version}  {status.answer}{since}"), *reasons])
