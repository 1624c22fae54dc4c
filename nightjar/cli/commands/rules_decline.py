"""`nightjar rules decline`: declines a proposed version, so that nobody can approve it any more."""

from typing import Annotated

import typer

from nightjar.cli.context import Context


def decline_rule(
    rule_id: Annotated[str, typer.Argument(help="The rule's id.", show_default=False)],
    version: Annotated[int, typer.Option(help="The version to decline.", show_default=False)],
    reason: Annotated[str, typer.Option(help="Why, for its author and `rules list`.", show_default=False)],
    author: Annotated[
        str | None, typer.Option(help="Who declines. Default: the login name.", show_default=False)
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Show the job's answer.")] = False,
    timeout: Annotated[float, typer.Option(min=1, help="Longest wait for the answer, in seconds.")] = 60.0,
) -> None:
    """Decline a version that waits for approval: it never takes effect, and what is in force stays so.

    Its author may do that, too, to withdraw it. To propose it once more, publish it again.
    """
    from nightjar.cli.rule_publishing import send_messages
    from nightjar.operations.rule_publishing import declining

    context = Context()
    book, _ = context.published
    message, _ = declining(context.settings, book, rule_id, version, author=author, reason=reason)
    send_messages(context, [message], wait=wait, timeout=timeout)
