"""`nightjar rules`: checks, publishes, lists, pauses and retires rules, and shows the catalogue."""

from pathlib import Path
from typing import Annotated

import typer

from nightjar.cli.commands.rules_approve import approve_rule
from nightjar.cli.commands.rules_cases import run_cases
from nightjar.cli.commands.rules_catalogue import app as catalogue
from nightjar.cli.commands.rules_check import check_rules
from nightjar.cli.commands.rules_decline import decline_rule
from nightjar.cli.commands.rules_import import import_rules
from nightjar.cli.commands.rules_list import list_rules
from nightjar.cli.commands.rules_restore import restore
from nightjar.cli.context import Context
from nightjar.cli.rule_files import read_rules, show_changes
from nightjar.cli.rule_publishing import publish_rules, send_messages, show_past_notices

Files = Annotated[list[Path], typer.Argument(help="Files of rules, YAML or JSON.", show_default=False)]
RuleId = Annotated[str, typer.Argument(help="The rule's id.", show_default=False)]
Wait = Annotated[bool, typer.Option("--wait", help="Show the job's answers until each rule is active or rejected.")]
Timeout = Annotated[float, typer.Option(min=1, help="Longest wait for the answers, in seconds.")]
Reason = Annotated[
    str | None, typer.Option(help="Reason, stored with the version and shown by `rules list`.", show_default=False)
]
Author = Annotated[str | None, typer.Option(help="Author. Default: the login name.", show_default=False)]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would change, also of past alerts, and send nothing.")
]
Effective = Annotated[
    str | None,
    typer.Option(help="Event time from which it applies, like 2026-04-01T12:00:00Z. Default: now.", show_default=False),
]


app = typer.Typer(
    name="rules",
    help="Check, test, publish, approve, decline, list, pause and retire rules, or start from the catalogue.",
    no_args_is_help=True,
)


app.command("check")(check_rules)
app.command("test")(run_cases)
app.command("import")(import_rules)
app.command("approve")(approve_rule)
app.command("decline")(decline_rule)
app.command("list")(list_rules)
app.command("restore")(restore)
app.add_typer(catalogue)


def register(main: typer.Typer) -> None:
    """Add the commands."""
    main.add_typer(app)


@app.command()
def publish(
    files: Files,
    reason: Reason = None,
    author: Author = None,
    wait: Wait = False,
    timeout: Timeout = 60.0,
    dry_run: DryRun = False,
) -> None:
    """Check rules and publish those that are new or changed, each as a new version.

    Of a version whose effective time is past it shows how many alerts the nights will announce and retract, by the
    events of the lake. With --wait, show the job's answers until each rule is active, or waits for approval; the exit
    code is 1 if one is rejected.
    """
    context = Context()
    found = read_rules(files, context.streams)
    publish_rules(context, found, author=author, reason=reason, wait=wait, timeout=timeout, dry_run=dry_run)


@app.command()
def diff(file: Annotated[Path, typer.Argument(help="A file of rules.", show_default=False)]) -> None:
    """Compare a file of rules with the published rules; the exit code is 1 if they differ.

    `+` marks lines of the file, `-` lines of the published rule. Lists published rules that are not in the file, unless
    they are retired.
    """
    from nightjar.operations.rule_listing import changed_rules, missing_rules
    from nightjar.terminal.console import counted, line

    context = Context()
    found = read_rules([file], context.streams)
    book, _ = context.published
    changed, missing = changed_rules(book, found), missing_rules(book, found)
    for newest, rule in changed:
        show_changes(context.console, newest, rule, f"{rule.id} in {file}")
    for version in missing:
        text = f"{version.rule.id} version {version.version} is published but not in {file}"
        context.console.print(line(text), soft_wrap=True)
    if changed or missing:
        raise typer.Exit(1)
    context.console.print(f"no differences in {counted(len(found), 'rule')}")


def _register_control(control: str, text: str) -> None:
    @app.command(control, help=text)
    def command(
        rule_id: RuleId,
        effective: Effective = None,
        reason: Reason = None,
        author: Author = None,
        wait: Wait = False,
        timeout: Timeout = 60.0,
        dry_run: DryRun = False,
    ) -> None:
        _control(control, rule_id, effective, author, reason, wait=wait, timeout=timeout, dry_run=dry_run)


_register_control("pause", "Stop evaluating a rule; it keeps its history.")
_register_control("resume", "Make a rule active again, from any state.")
_register_control("shadow", "Keep evaluating a rule, but mark its alerts as shadow.")
_register_control("retire", "End a rule permanently and drop its history.")


def _control(
    control: str,
    rule_id: str,
    effective: str | None,
    author: str | None,
    reason: str | None,
    *,
    wait: bool,
    timeout: float,
    dry_run: bool,
) -> None:
    from nightjar.operations.rule_publishing import controlling
    from nightjar.rules.versions import latest

    context = Context()
    book, _ = context.published
    prepared = controlling(context.settings, book, control, rule_id, effective, author=author, reason=reason)
    if prepared is None:
        last = latest(book.of_rule(rule_id))
        if last is not None:
            text = f"{rule_id}  unchanged: version {last.version} is {last.rule.state.value}"
            context.console.print(text, soft_wrap=True)
        return
    show_past_notices(context, book, [prepared.message])
    if dry_run:
        state = prepared.made.rule.state.value
        context.console.print(f"{rule_id}  would become {state}; nothing was sent", soft_wrap=True)
        return
    send_messages(context, [prepared.message], wait=wait, timeout=timeout)
