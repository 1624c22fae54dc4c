"""`nightjar rules approve`: lets a version take effect that somebody else has proposed."""

from typing import Annotated

import typer

from rules.errors import NightjarError


def approve_rule(
    rule_id: Annotated[str, typer.Argument(help="The rule's id.", show_default=False)],
    version: Annotated[int, typer.Option(help="The version to approve.", show_default=False)],
    reason: Annotated[
        str | None, typer.Option(help="Why, for `rules list`. Without it nothing is approved.", show_default=False)
    ] = None,
    author: Annotated[
        str | None, typer.Option(help="Who approves. Default: the login name.", show_default=False)
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Show the job's answers until the rule is active.")] = False,
    timeout: Annotated[float, typer.Option(min=1, help="Longest wait for the answers, in seconds.")] = 60.0,
) -> None:
    """Let a proposed version take effect; somebody other than its author has to approve it.

    Shows in which lines it differs from the version in force. Without --reason that is all: look first, then approve.
    With `approvals = 1` every published version, also a pause, is only proposed until it is approved.
    """
    from contracts.rule_messages import approval_message
    from nightjar.cli.console import result_console
    from nightjar.cli.past_effects import show_past_effects
    from nightjar.cli.rule_files import show_changes
    from nightjar.cli.rule_publishing import provenance, send_messages
    from nightjar.configuration.settings import load_settings
    from nightjar.kafka import rule_topics
    from rules.publishing import judge
    from rules.streams import load_streams

    settings = load_settings()
    streams = load_streams(settings.streams)
    book, _ = rule_topics.expected_book(settings, streams)
    who = provenance(author, None).get("author", "")
    message = approval_message(rule_id, version, who, reason or "to be given")
    made, status = judge(book, message, 0, streams, approvals=settings.approvals)
    if made is None:
        raise NightjarError("\n".join(status.reasons), where=f"approve {rule_id}")
    console = result_console()
    in_force = [known for known in book.of_rule(rule_id) if not known.is_proposed]
    title = f"{rule_id} version {version} by {made.rule.author}: {made.rule.reason}"
    show_changes(console, in_force[-1] if in_force else None, made.rule, title)
    show_past_effects(settings, streams, book, [message], console)
    if reason is None:
        console.print(f"{rule_id}  not approved: give a --reason to approve version {version}", soft_wrap=True)
        return
    send_messages(settings, [message], console, wait=wait, timeout=timeout, approved=made.rule.state)
