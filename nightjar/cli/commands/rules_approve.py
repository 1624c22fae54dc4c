"""`nightjar rules approve`: lists versions that wait for approval, and approves one that somebody else has proposed."""

from typing import TYPE_CHECKING, Annotated

import typer

from nightjar.cli.context import Context
from nightjar.rules.errors import NightjarError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nightjar.operations.rule_listing import Waiting
    from nightjar.terminal.tables import RecordTable


def approve_rule(
    rule_id: Annotated[
        str | None, typer.Argument(help="The rule's id. Without it, list the versions that wait.", show_default=False)
    ] = None,
    version: Annotated[int | None, typer.Option(help="The version to approve.", show_default=False)] = None,
    reason: Annotated[
        str | None, typer.Option(help="Why, for `rules list`. Without it nothing is approved.", show_default=False)
    ] = None,
    author: Annotated[
        str | None, typer.Option(help="Who approves. Default: the login name.", show_default=False)
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Show the job's answers until the rule is active.")] = False,
    timeout: Annotated[float, typer.Option(min=1, help="Longest wait for the answers, in seconds.")] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print what waits as one JSON array.")] = False,
) -> None:
    """Let a proposed version take effect; somebody other than its author has to approve it.

    Without a rule it lists what waits for approval: by whom, since when, why, and what it changes. With a rule it shows
    in which lines the version differs from the one in force. Without --reason that is all: look first, then approve.
    With `approvals = 1` every published version, also a pause, is only proposed until it is approved.
    """
    from nightjar.operations.rule_listing import waiting
    from nightjar.terminal.console import show_json

    context = Context()
    if rule_id is not None:
        _approve(context, rule_id, version, author, reason, wait=wait, timeout=timeout)
        return
    if version is not None or reason is not None:
        raise NightjarError("no rule is named", where="approve", remedy="Write `nightjar rules approve RULE`")
    book, _ = context.published
    found = waiting(book)
    if as_json:
        show_json([each._asdict() for each in found])
    elif found:
        context.console.print(_table(found))
        context.console.print("`nightjar rules approve RULE` shows one, and how to approve it.")
    else:
        context.console.print("No version waits for approval.")


def _table(found: "Sequence[Waiting]") -> "RecordTable":
    from nightjar.terminal.tables import RecordTable, prose

    table = RecordTable("rule", "version", "author", "since", prose("reason"), prose("effect"))
    for each in found:
        since = f"{each.since[:10]} {each.since[11:16]} UTC"
        named = (each.rule_id, str(each.rule_version), each.author or "", since)
        table.add_row(*named, each.reason or "", each.effect)
    return table


def _approve(
    context: Context,
    rule_id: str,
    version: int | None,
    author: str | None,
    reason: str | None,
    *,
    wait: bool,
    timeout: float,
) -> None:
    from nightjar.cli.rule_files import show_changes
    from nightjar.cli.rule_publishing import send_messages, show_past_notices
    from nightjar.operations.rule_publishing import approving, in_force

    book, _ = context.published
    message, made = approving(context.settings, book, rule_id, version, author=author, reason=reason)
    title = f"{rule_id} version {made.version} by {made.rule.author}: {made.rule.reason}"
    show_changes(context.console, in_force(book, rule_id), made.rule, title)
    show_past_notices(context, book, [message])
    if reason is None:
        how = f"`nightjar rules approve {rule_id} --version {made.version} --reason ...`"
        context.console.print(f"{rule_id}  not approved: {how} approves it", soft_wrap=True)
        return
    send_messages(context, [message], wait=wait, timeout=timeout, approved=made.rule.state)
