"""`nightjar rules`: checking and publishing rules, steering them, and seeing what is published."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rules.errors import NightjarError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from nightjar.published import Told
    from nightjar.settings import Settings
    from rules.model import Rule
    from rules.streams import Stream
    from rules.versions import RuleVersion

Files = Annotated[list[Path], typer.Argument(help="Files of rules, YAML or JSON.", show_default=False)]
RuleId = Annotated[str, typer.Argument(help="The rule's id.", show_default=False)]
Wait = Annotated[bool, typer.Option("--wait", help="Show the job's answers until each rule is active or rejected.")]
Timeout = Annotated[float, typer.Option(min=1, help="Longest wait for the answers, in seconds.")]
Effective = Annotated[
    str | None,
    typer.Option(help="Event time from which it holds, like 2026-04-01T12:00:00Z. Default: now.", show_default=False),
]

app = typer.Typer(name="rules", help="Publish rules, steer them, and see what is published.", no_args_is_help=True)


def register(main: typer.Typer) -> None:
    """Add the commands."""
    main.add_typer(app)


@app.command()
def check(
    files: Files,
    streams: Annotated[
        Path | None,
        typer.Option(help="TOML file of stream declarations, instead of the configured.", show_default=False),
    ] = None,
) -> None:
    """Say everything that is wrong with rules, each with its place and a remedy; the exit code is 2 if anything is.

    Nothing needs to run for it.
    """
    from nightjar.settings import load_settings
    from rules.model import load_rules
    from rules.streams import load_streams

    declared = load_streams(load_settings(**({} if streams is None else {"streams": streams})).streams)
    refusals: list[NightjarError] = []
    for file in files:
        try:
            found = load_rules(file, declared)
        except NightjarError as refusal:
            refusals.append(refusal)
            continue
        typer.echo(f"{file}: {len(found)} rule{'s'[: len(found) != 1]}: {', '.join(rule.id for rule in found)}")
    for refusal in refusals:
        typer.secho("error: ", fg="red", bold=True, err=True, nl=False)
        typer.echo(str(refusal), err=True)
    if refusals:
        raise typer.Exit(2)


@app.command()
def publish(files: Files, wait: Wait = False, timeout: Timeout = 60.0) -> None:
    """Check rules and publish those that are new or changed; each becomes a version of its own.

    With --wait the job's answers are shown until each rule is active; the exit code is 1 if one was rejected.
    """
    from rich.console import Console

    from nightjar import published
    from rules.model import rule_to_mapping

    settings, streams = _configured()
    found = _read(files, streams)
    book, _ = published.expected_book(settings, streams)
    console = Console(highlight=False)
    changed = []
    for rule in found:
        if published.unchanged(book, rule):
            newest = book.ruleset.of_rule(rule.id)[-1]
            console.print(f"{rule.id}  unchanged: it is version {newest.version}", soft_wrap=True)
        else:
            changed.append(rule_to_mapping(rule))
    _send(settings, changed, console, wait=wait, timeout=timeout)


@app.command("list")
def list_rules(
    every: Annotated[bool, typer.Option("--all", help="Every version, not the last of each rule alone.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array of versions.")] = False,
) -> None:
    """Show what is published: versions, states, and from which event time on they hold."""
    from rich.table import Table

    from nightjar import published
    from nightjar.console import result_console
    from rules.model import rule_to_mapping
    from streaming.rulebook import effective_text

    settings, streams = _configured()
    book, unanswered = published.expected_book(settings, streams)
    last = {version.rule.id: version for version in book.ruleset.versions}
    shown = book.ruleset.versions if every else tuple(last.values())
    if as_json:
        rows = [
            {
                "rule_id": version.rule.id,
                "rule_version": version.version,
                "state": version.rule.state.value,
                "effective": effective_text(version),
                "answered": (version.rule.id, version.version) not in unanswered,
                "rule": rule_to_mapping(version.rule),
            }
            for version in shown
        ]
        typer.echo(json.dumps(rows))
        return
    table = Table("rule", "version", "state", "stream", "group by", "severity", "holds from (event time)")
    for version in shown:
        rule = version.rule
        table.add_row(
            rule.id,
            str(version.version),
            rule.state.value,
            rule.stream,
            ", ".join(rule.group_by) or "(all)",
            rule.severity.value,
            _holds_from(version, answered=(rule.id, version.version) not in unanswered),
        )
    result_console().print(table if shown else "No rule is published: `nightjar rules publish FILE` does.")


@app.command()
def diff(file: Annotated[Path, typer.Argument(help="A file of rules.", show_default=False)]) -> None:
    """Compare a file of rules with what is published; the exit code is 1 where they differ.

    `+` is in the file, `-` is published. Published rules that the file does not hold are named, unless retired.
    """
    import difflib

    from rich.console import Console
    from rich.text import Text

    from nightjar import published
    from rules.model import State

    settings, streams = _configured()
    found = _read([file], streams)
    book, _ = published.expected_book(settings, streams)
    console = Console(highlight=False)
    same = True
    for rule in found:
        versions = book.ruleset.of_rule(rule.id)
        if versions and versions[-1].rule == rule:
            continue
        same = False
        before = _lines(versions[-1].rule) if versions else []
        title = f"{rule.id} version {versions[-1].version}" if versions else "(not published)"
        for line in difflib.unified_diff(before, _lines(rule), title, f"{rule.id} in {file}", lineterm="", n=99):
            style = "green" if line.startswith("+") else "red" if line.startswith("-") else ""
            console.print(Text(line, style=style), soft_wrap=True)
    named = {rule.id for rule in found}
    for version in {version.rule.id: version for version in book.ruleset.versions}.values():
        if version.rule.id not in named and version.rule.state is not State.RETIRED:
            same = False
            console.print(f"{version.rule.id} version {version.version} is published and not in {file}")
    if not same:
        raise typer.Exit(1)
    console.print(f"{len(found)} rules, as published")


@app.command()
def pause(rule_id: RuleId, effective: Effective = None, wait: Wait = False, timeout: Timeout = 60.0) -> None:
    """Stop looking for a rule's violations; it keeps its history."""
    _control("pause", rule_id, effective, wait=wait, timeout=timeout)


@app.command()
def resume(rule_id: RuleId, effective: Effective = None, wait: Wait = False, timeout: Timeout = 60.0) -> None:
    """Make a rule active again, whatever state it is in."""
    _control("resume", rule_id, effective, wait=wait, timeout=timeout)


@app.command()
def shadow(rule_id: RuleId, effective: Effective = None, wait: Wait = False, timeout: Timeout = 60.0) -> None:
    """Go on evaluating a rule, with alerts that are marked as shadow."""
    _control("shadow", rule_id, effective, wait=wait, timeout=timeout)


@app.command()
def retire(rule_id: RuleId, effective: Effective = None, wait: Wait = False, timeout: Timeout = 60.0) -> None:
    """End a rule for good; its history is let go."""
    _control("retire", rule_id, effective, wait=wait, timeout=timeout)


def _configured() -> "tuple[Settings, Mapping[str, Stream]]":
    from nightjar.settings import load_settings
    from rules.streams import load_streams

    settings = load_settings()
    return settings, load_streams(settings.streams)


def _read(files: list[Path], streams: "Mapping[str, Stream]") -> "list[Rule]":
    from rules.model import load_rules

    found: dict[str, tuple[Path, Rule]] = {}
    for file in files:
        for rule in load_rules(file, streams):
            if rule.id in found:
                raise SettingsError(
                    f"rule {rule.id} is in {found[rule.id][0]} too",
                    where=str(file),
                    remedy="Give each an id of its own",
                )
            found[rule.id] = file, rule
    return [rule for _, rule in found.values()]


def _control(control: str, rule_id: str, effective: str | None, *, wait: bool, timeout: float) -> None:
    from rich.console import Console

    from nightjar import published
    from rules.publication import Answer, judge

    settings, streams = _configured()
    message = {"control": control, "rule": rule_id} | ({} if effective is None else {"effective": effective})
    book, _ = published.expected_book(settings, streams)
    made, status = judge(book, message, 0, streams)
    if status.answer is Answer.REJECTED:
        raise NightjarError("\n".join(status.reasons), where=f"{control} {rule_id}")
    console = Console(highlight=False)
    if made is None:
        state = book.of_rule(rule_id)[-1].rule.state
        console.print(f"{rule_id}  unchanged: version {status.rule_version} is {state.value}")
        return
    _send(settings, [message], console, wait=wait, timeout=timeout)


def _send(
    settings: "Settings", messages: list[dict[str, Any]], console: "Console", *, wait: bool, timeout: float
) -> None:
    from nightjar import published
    from rules.publication import Answer

    if not messages:
        return
    if not wait:
        published.send(settings, messages)
        for message in messages:
            console.print(f"{message.get('id') or message['rule']}  published on {settings.rules_topic}")
        return
    rejected = False
    with published.Answers(settings) as answers:
        published.send(settings, messages)
        for told in answers.until_settled(messages, timeout):
            console.print(_answer(told), soft_wrap=True)
            rejected |= told.answer is Answer.REJECTED
    if rejected:
        raise typer.Exit(1)


def _answer(told: "Told") -> str:
    version = "" if told.version is None else f" version {told.version}"
    since = "" if told.effective is None else f", holds from {told.effective}"
    reasons = "".join(f"\n    {reason}" for reason in told.reasons)
    return f"{told.rule_id}{version}  {told.answer}{since}{reasons}"


def _holds_from(version: "RuleVersion", *, answered: bool) -> str:
    """From which event time on a version holds, for people."""
    from streaming.rulebook import effective_text

    if not answered:
        return "waiting for the job to answer"
    return effective_text(version) or "waiting for the job to make a route"


def _lines(rule: "Rule") -> list[str]:
    import yaml

    from rules.model import rule_to_mapping

    text: str = yaml.safe_dump(rule_to_mapping(rule), sort_keys=False, allow_unicode=True, width=110)
    return text.splitlines()
