"""`nightjar rules`: checks, publishes, lists, pauses and retires rules."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nightjar.cli.commands.rules_approve import approve_rule
from nightjar.cli.commands.rules_cases import run_cases
from nightjar.cli.commands.rules_check import check_rules
from nightjar.cli.commands.rules_import import import_rules
from nightjar.cli.commands.rules_list import list_rules
from rules.errors import NightjarError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.text import Text

    from contracts.rule_status import ShownStatus
    from nightjar.cli.console import SafeConsole
    from nightjar.configuration.settings import Settings
    from rules.model import Rule, State
    from rules.streams import Stream
    from rules.versions import RuleVersion

Files = Annotated[list[Path], typer.Argument(help="Files of rules, YAML or JSON.", show_default=False)]
RuleId = Annotated[str, typer.Argument(help="The rule's id.", show_default=False)]
Wait = Annotated[bool, typer.Option("--wait", help="Show the job's answers until each rule is active or rejected.")]
Timeout = Annotated[float, typer.Option(min=1, help="Longest wait for the answers, in seconds.")]
Reason = Annotated[
    str | None, typer.Option(help="Reason, stored with the version and shown by `rules list`.", show_default=False)
]
Author = Annotated[str | None, typer.Option(help="Author. Default: the login name.", show_default=False)]
Effective = Annotated[
    str | None,
    typer.Option(help="Event time from which it applies, like 2026-04-01T12:00:00Z. Default: now.", show_default=False),
]


app = typer.Typer(
    name="rules",
    help="Check, test, publish, approve, list, pause and retire rules.",
    no_args_is_help=True,
)


app.command("check")(check_rules)
app.command("test")(run_cases)
app.command("import")(import_rules)
app.command("approve")(approve_rule)
app.command("list")(list_rules)


def register(main: typer.Typer) -> None:
    """Add the commands."""
    main.add_typer(app)


@app.command()
def publish(
    files: Files, reason: Reason = None, author: Author = None, wait: Wait = False, timeout: Timeout = 60.0
) -> None:
    """Check rules and publish those that are new or changed, each as a new version.

    With --wait, show the job's answers until each rule is active, or waits for approval; the exit code is 1 if one is
    rejected.
    """
    settings, streams = configured()
    publish_rules(
        settings, streams, read_rules(files, streams), author=author, reason=reason, wait=wait, timeout=timeout
    )


def publish_rules(
    settings: "Settings",
    streams: "Mapping[str, Stream]",
    found: "list[Rule]",
    *,
    author: str | None,
    reason: str | None,
    wait: bool = False,
    timeout: float = 60.0,
) -> None:
    """Publish the rules that are new or changed, and report each."""
    from contracts.rule_messages import rule_message
    from nightjar.cli.console import result_console
    from nightjar.kafka import rule_topics
    from rules.model import parse_rule

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
    send_messages(settings, changed, console, wait=wait, timeout=timeout)


@app.command()
def diff(file: Annotated[Path, typer.Argument(help="A file of rules.", show_default=False)]) -> None:
    """Compare a file of rules with the published rules; the exit code is 1 if they differ.

    `+` marks lines of the file, `-` lines of the published rule. Lists published rules that are not in the file, unless
    they are retired.
    """
    from nightjar.cli.console import counted, line, result_console
    from nightjar.kafka import rule_topics
    from rules.model import State

    settings, streams = configured()
    found = read_rules([file], streams)
    book, _ = rule_topics.expected_book(settings, streams)
    console = result_console()
    same = True
    for rule in found:
        versions = book.of_rule(rule.id)
        if versions and versions[-1].rule == rule:
            continue
        same = False
        show_changes(console, versions[-1] if versions else None, rule, f"{rule.id} in {file}")
    named = {rule.id for rule in found}
    for version in {version.rule.id: version for version in book.every}.values():
        if version.rule.id not in named and version.rule.state is not State.RETIRED:
            same = False
            text = f"{version.rule.id} version {version.version} is published but not in {file}"
            console.print(line(text), soft_wrap=True)
    if not same:
        raise typer.Exit(1)
    console.print(f"no differences in {counted(len(found), 'rule')}")


def _register_control(control: str, text: str) -> None:
    @app.command(control, help=text)
    def command(
        rule_id: RuleId,
        effective: Effective = None,
        reason: Reason = None,
        author: Author = None,
        wait: Wait = False,
        timeout: Timeout = 60.0,
    ) -> None:
        _control(control, rule_id, effective, provenance(author, reason), wait=wait, timeout=timeout)


_register_control("pause", "Stop evaluating a rule; it keeps its history.")
_register_control("resume", "Make a rule active again, from any state.")
_register_control("shadow", "Keep evaluating a rule, but mark its alerts as shadow.")
_register_control("retire", "End a rule permanently and drop its history.")


def configured() -> "tuple[Settings, Mapping[str, Stream]]":
    """The settings, and the declared streams."""
    from nightjar.configuration.settings import load_settings
    from rules.streams import load_streams

    settings = load_settings()
    return settings, load_streams(settings.streams)


def read_rules(files: list[Path], streams: "Mapping[str, Stream]") -> "list[Rule]":
    """The rules of some files. Raises SettingsError if two have a rule of the same id."""
    from rules.model import load_rules

    found: dict[str, tuple[Path, Rule]] = {}
    for file in files:
        for rule in load_rules(file, streams):
            if rule.id in found:
                raise SettingsError(
                    f"rule {rule.id} is also in {found[rule.id][0]}",
                    where=str(file),
                    remedy="Give each rule a unique id",
                )
            found[rule.id] = file, rule
    return [rule for _, rule in found.values()]


def provenance(author: str | None, reason: str | None) -> dict[str, str]:
    """Author and reason as keys of a message; the author defaults to the login name."""
    import getpass

    if author is None:
        try:
            author = getpass.getuser()
        except (KeyError, OSError):  # the user has no name, as in some containers
            author = None
    return {key: text for key, text in (("author", author), ("reason", reason)) if text}


def _control(
    control: str, rule_id: str, effective: str | None, provenance: dict[str, str], *, wait: bool, timeout: float
) -> None:
    from contracts.rule_messages import control_message
    from nightjar.cli.console import result_console
    from nightjar.kafka import rule_topics
    from rules.publishing import Answer, judge

    settings, streams = configured()
    message = control_message(control, rule_id, effective) | provenance
    book, _ = rule_topics.expected_book(settings, streams)
    made, status = judge(book, message, 0, streams, approvals=settings.approvals)
    if status.answer is Answer.REJECTED:
        raise NightjarError("\n".join(status.reasons), where=f"{control} {rule_id}")
    console = result_console()
    if made is None:
        state = book.of_rule(rule_id)[-1].rule.state
        console.print(f"{rule_id}  unchanged: version {status.rule_version} is {state.value}", soft_wrap=True)
        return
    send_messages(settings, [message], console, wait=wait, timeout=timeout)


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
    from contracts.rule_messages import rule_of
    from nightjar.kafka import rule_topics
    from rules.publishing import Answer

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

    from nightjar.cli.console import line

    version = "" if status.version is None else f" version {status.version}"
    since = "" if status.effective is None else f", applies from {status.effective}"
    reasons = [line(f"    {each}") for reason in status.reasons for each in reason.split("\n")]
    return Text("\n").join([line(f"{status.rule_id}{version}  {status.answer}{since}"), *reasons])


def show_changes(console: "SafeConsole", before: "RuleVersion | None", after: "Rule", title: str) -> None:
    """The lines in which a rule differs from a version of it. title: of the rule."""
    import difflib

    from nightjar.cli.console import line

    lines = _lines(before.rule) if before is not None else []
    of_before = f"{after.id} version {before.version}" if before is not None else "(not published)"
    for each in difflib.unified_diff(lines, _lines(after), of_before, title, lineterm="", n=99):
        style = "green" if each.startswith("+") else "red" if each.startswith("-") else ""
        console.print(line((each, style)), soft_wrap=True)


def _lines(rule: "Rule") -> list[str]:
    return yaml_text(rule, provenance=False).splitlines()


def yaml_text(rule: "Rule", *, provenance: bool = True) -> str:
    """A rule as people write it; characters that would not be shown are escaped."""
    import yaml

    from rules.model import PROVENANCE, rule_to_mapping

    written = {key: value for key, value in rule_to_mapping(rule).items() if provenance or key not in PROVENANCE}
    for readable in (True, False):
        text: str = yaml.safe_dump(written, sort_keys=False, default_flow_style=None, allow_unicode=readable, width=110)
        if all(line.isprintable() for line in text.splitlines()):
            break
    return text
