"""Sends rule messages for the commands, and shows what they change and the job's answers."""

from typing import TYPE_CHECKING

import typer

from nightjar.cli.context import Context

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.text import Text

    from nightjar.contracts.rule_status import ShownStatus
    from nightjar.operations.rule_publishing import Message
    from nightjar.rules.model import Rule
    from nightjar.rules.states import State
    from nightjar.rules.versions import Published


def publish_rules(
    context: Context,
    found: "list[Rule]",
    *,
    author: str | None,
    reason: str | None,
    wait: bool = False,
    timeout: float = 60.0,
    dry_run: bool = False,
) -> None:
    """Publish the rules that are new or changed, and report each. dry_run: show their changes, and send nothing."""
    from nightjar.cli.rule_files import show_changes
    from nightjar.operations.rule_publishing import in_force, publishing
    from nightjar.rules.versions import latest
    from nightjar.terminal.console import counted

    book, _ = context.published
    messages = []
    for rule in sorted(found, key=lambda rule: rule.names_others):  # each after those that it names
        message = publishing(book, rule, author, reason)
        if message is None:
            last = latest(book.of_rule(rule.id))
            if last is not None:
                waits = ", which waits for approval" if last.is_proposed else ""
                context.console.print(f"{rule.id}  unchanged: it is version {last.version}{waits}", soft_wrap=True)
            continue
        messages.append(message)
        if dry_run:
            show_changes(context.console, in_force(book, rule.id), rule, f"{rule.id} as given")
    show_past_notices(context, book, messages)
    if dry_run:
        context.console.print(f"{counted(len(messages), 'rule')} would be published; nothing was sent")
        return
    send_messages(context, messages, wait=wait, timeout=timeout)


def show_past_notices(context: Context, known: "Published", messages: "Iterable[Message]", *, indent: int = 0) -> None:
    """Print what versions that apply to the past change there; see `past_notices`."""
    from nightjar.operations.past_notices import past_notices
    from nightjar.terminal.console import line

    for text in past_notices(context.settings, context.streams, known, messages, context.stages):
        context.console.print(line(" " * indent, (text, "yellow")), soft_wrap=True)


def send_messages(
    context: Context, messages: "Sequence[Message]", *, wait: bool, timeout: float, approved: "State | None" = None
) -> None:
    """Send rule messages; with `wait` show the job's answers until each is settled. Exits with 1 if one is rejected.

    approved: the state of the version that they approve.
    """
    from nightjar.contracts.rule_messages import rule_of
    from nightjar.kafka import rule_topics
    from nightjar.operations.rule_publishing import send_and_follow
    from nightjar.rules.publishing import Answer

    if not messages:
        return
    if not wait:
        rule_topics.send(context.settings, messages)
        for message in messages:
            text = f"{rule_of(message)}  published on {context.settings.rules_topic}"
            context.console.print(text, soft_wrap=True)
        return
    rejected = False
    for status in send_and_follow(context.settings, messages, timeout, approved):
        context.console.print(_answer(status), soft_wrap=True)
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
