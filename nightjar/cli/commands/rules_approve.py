"""`nightjar rules approve`: lists versions that wait for approval, and approves one that somebody else has proposed."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from nightjar.rules.errors import NightjarError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nightjar.rules.rulebook import RuleBook
    from nightjar.rules.versions import RuleVersion
    from nightjar.terminal.tables import Records


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
    from nightjar.cli.rule_files import configured
    from nightjar.kafka import rule_topics
    from nightjar.terminal.console import result_console, show_json

    settings, streams = configured()
    book, _ = rule_topics.expected_book(settings, streams)
    if rule_id is not None:
        _approve(book, rule_id, version, author, reason, wait=wait, timeout=timeout)
        return
    if version is not None or reason is not None:
        raise NightjarError("no rule is named", where="approve", remedy="Write `nightjar rules approve RULE`")
    found = waiting(book)
    if as_json:
        show_json([_row(book, each) for each in found])
    elif found:
        result_console().print(_table(book, found))
        result_console().print("`nightjar rules approve RULE` shows one, and how to approve it.")
    else:
        result_console().print("No version waits for approval.")


def waiting(book: "RuleBook") -> "list[RuleVersion]":
    """The versions that can be approved, those that have waited longest first."""
    newest = [book.of_rule(rule_id)[-1] for rule_id in book.rule_ids]
    found = [version for version in newest if version.is_proposed]
    return sorted(found, key=lambda version: book.published[version.rule.id, version.version])


def _row(book: "RuleBook", version: "RuleVersion") -> dict[str, Any]:
    from nightjar.rules.timestamps import iso_text

    rule = version.rule
    return {
        "rule_id": rule.id,
        "rule_version": version.version,
        "author": rule.author,
        "since": iso_text(book.published[rule.id, version.version]),
        "reason": rule.reason,
        "effect": _effect(book, version),
    }


def _table(book: "RuleBook", found: "Sequence[RuleVersion]") -> "Records":
    from nightjar.terminal.tables import Records, prose

    table = Records("rule", "version", "author", "since", prose("reason"), prose("effect"))
    for version in found:
        row = _row(book, version)
        since = f"{row['since'][:10]} {row['since'][11:16]} UTC"
        named = (row["rule_id"], str(row["rule_version"]), row["author"] or "", since)
        table.add_row(*named, row["reason"] or "", row["effect"])
    return table


def _in_force(book: "RuleBook", rule_id: str) -> "RuleVersion | None":
    return next((known for known in reversed(book.of_rule(rule_id)) if not known.is_proposed), None)


def _effect(book: "RuleBook", version: "RuleVersion") -> str:
    """What approving a version does, beside the one in force."""
    from nightjar.rules.display import changed_lines
    from nightjar.terminal.console import counted

    rule, before = version.rule, _in_force(book, version.rule.id)
    if before is None:
        return f"a new rule on {rule.stream}, {rule.state.value}"
    changed = [each for each in changed_lines(before, rule, "") if each[:1] in "+-" and each[:3] not in ("+++", "---")]
    becomes = "" if rule.state is before.rule.state else f"{before.rule.state.value} becomes {rule.state.value}; "
    return f"{becomes}{counted(len(changed), 'changed line')} against version {before.version}"


def _approve(
    book: "RuleBook",
    rule_id: str,
    version: int | None,
    author: str | None,
    reason: str | None,
    *,
    wait: bool,
    timeout: float,
) -> None:
    from nightjar.cli.past_effects import show_past_effects
    from nightjar.cli.rule_files import configured, show_changes
    from nightjar.cli.rule_publishing import provenance, send_messages
    from nightjar.contracts.rule_messages import approval_message
    from nightjar.rules.publishing import judge
    from nightjar.terminal.console import result_console

    settings, streams = configured()
    versions = book.of_rule(rule_id)
    if version is None and reason is not None:
        remedy = f"Look with `nightjar rules approve {rule_id}`, and name the version that you have seen: --version"
        raise NightjarError("no version is named", where=f"approve {rule_id}", remedy=remedy)
    if version is None:
        version = versions[-1].version if versions else 1
    who = provenance(author, None).get("author", "")
    message = approval_message(rule_id, version, who, reason or "to be given")
    made, status = judge(book, message, 0, streams, approvals=settings.approvals)
    if made is None:
        raise NightjarError("\n".join(status.reasons), where=f"approve {rule_id}")
    console = result_console()
    title = f"{rule_id} version {version} by {made.rule.author}: {made.rule.reason}"
    show_changes(console, _in_force(book, rule_id), made.rule, title)
    show_past_effects(settings, streams, book, [message], console)
    if reason is None:
        how = f"`nightjar rules approve {rule_id} --version {version} --reason ...`"
        console.print(f"{rule_id}  not approved: {how} approves it", soft_wrap=True)
        return
    send_messages(settings, [message], console, wait=wait, timeout=timeout, approved=made.rule.state)
