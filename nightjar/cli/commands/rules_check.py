"""`nightjar rules check`: everything wrong with rules, what is doubtful, what they cost, and what they would find."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nightjar.cli.context import Context
from nightjar.rules.errors import NightjarError, RuleError

if TYPE_CHECKING:
    from nightjar.operations.preview import Preview
    from nightjar.operations.retention import Estimate
    from nightjar.rules.model import Rule
    from nightjar.terminal.console import SafeConsole

_OVERLAPS = 3  # live rules to name


class ErrorFormat(StrEnum):
    """How `rules check` reports errors."""

    TEXT = "text"
    GITHUB = "github"


def check_rules(
    files: Annotated[list[Path], typer.Argument(help="Files of rules, YAML or JSON.", show_default=False)],
    streams: Annotated[
        Path | None,
        typer.Option(help="TOML file of stream declarations, instead of the configured.", show_default=False),
    ] = None,
    rate: Annotated[
        list[str] | None,
        typer.Option(help="Events per day of a stream, as STREAM=NUMBER. May be repeated.", show_default=False),
    ] = None,
    rates: Annotated[
        Path | None, typer.Option(help="TOML file of events per day: STREAM = NUMBER.", show_default=False)
    ] = None,
    preview: Annotated[
        bool, typer.Option(help="Evaluate the rules over the newest events of the lake, if there is one.")
    ] = True,
    form: Annotated[
        ErrorFormat, typer.Option("--format", help="`github`: errors and warnings as annotations of a pull request.")
    ] = ErrorFormat.TEXT,
) -> None:
    """Report every error in rules, with its place and a remedy; the exit code is 2 if there are any.

    No service is needed. Conditions that no event can meet are warnings, and so are ids and tags of other rules that
    look misspelt. If a stream's events per day are given or known from the lake, it also estimates how many events each
    rule retains (events per day x widest window) and rejects more than `max_retained_events`. Where there is a lake,
    the rules are evaluated over its newest 50,000 events: how many alerts, examples, and which live rules alert on the
    same events; and of a rule whose effective time is past, how many alerts the nights will announce and retract.
    """
    from nightjar.operations.retention import given_rates
    from nightjar.operations.rule_check import check_file
    from nightjar.terminal.console import counted, lines, show_error

    context = Context(streams=streams)
    given = given_rates(rate or [], rates, context.streams)
    refusals: list[tuple[Path, NightjarError]] = []
    for file in files:
        try:
            found = check_file(context.settings, context.streams, file, given)
        except NightjarError as refusal:
            refusals.append((file, refusal))
            continue
        names = ", ".join(rule.id for rule in found.rules)
        context.console.print(f"{file}: {counted(len(found.rules), 'rule')}: {names}", soft_wrap=True)
        _show_costs(context.console, found.costs)
        if form is ErrorFormat.GITHUB and found.warnings:
            _annotate(context.console, file, RuleError(found.warnings), "warning")
        for warning in found.warnings if form is ErrorFormat.TEXT else ():
            context.console.print(lines(f"    warning: {warning}", "yellow"), soft_wrap=True)
        if preview and context.settings.lake.is_dir():
            _show_past(context, found.rules)
    for file, each in refusals:
        if form is ErrorFormat.GITHUB:
            _annotate(context.console, file, each, "error")
        else:
            show_error(each)
    if refusals:
        raise typer.Exit(2)


def _annotate(console: "SafeConsole", file: Path, refusal: NightjarError, level: str) -> None:
    from nightjar.cli.annotations import github_annotations

    for annotation in github_annotations(file, refusal, level):
        console.print(annotation, soft_wrap=True)


def _show_past(context: Context, rules: "list[Rule]") -> None:
    """What the rules find in the lake, and change of the past."""
    from nightjar.cli.rule_publishing import show_past_notices
    from nightjar.contracts.rule_messages import rule_message
    from nightjar.operations.lake_gaps import gaps
    from nightjar.operations.preview import known_rules, previews
    from nightjar.terminal.console import line
    from nightjar.terminal.stages import announce_compiling

    announce_compiling()
    lake, streams = context.settings.lake, context.streams
    for rule_id, seen in previews(lake, streams, rules).items():
        _show_preview(context.console, rule_id, seen)
    for gap in gaps(lake, streams, rules):
        context.console.print(line(f"    {gap}"), soft_wrap=True)
    show_past_notices(context, known_rules(lake, streams), map(rule_message, rules), indent=4)


def _show_costs(console: "SafeConsole", cost: "dict[str, Estimate]") -> None:
    from nightjar.terminal.console import counted

    for rule_id, estimate in cost.items():
        retained = f"retains about {counted(estimate.retained, 'event')}"
        console.print(f"    {rule_id} {retained}, of {estimate.per_day:,.0f} a day", soft_wrap=True)


def _show_preview(console: "SafeConsole", rule_id: str, seen: "Preview") -> None:
    from nightjar.terminal.console import counted, line

    span = f"{seen.first:%Y-%m-%d %H:%M} to {seen.last:%Y-%m-%d %H:%M}"
    found, newest = counted(seen.alerts, "alert"), f"the newest {counted(seen.events, 'event')} ({span})"
    if seen.is_allow_rule:
        found = f"holds at {counted(seen.alerts, 'event')}"
    console.print(f"    {rule_id}: {found} {'of' if seen.is_allow_rule else 'on'} {newest}", soft_wrap=True)
    for overlap in seen.overlaps[:_OVERLAPS]:
        both = f"{overlap.both:,} of them where {overlap.rule_id} alerts too, which has {overlap.alerts:,}"
        if seen.is_allow_rule:
            both = f"silences {overlap.both:,} of the {counted(overlap.alerts, 'alert')} of {overlap.rule_id}"
        console.print(f"        {both}", soft_wrap=True)
    for example in seen.examples:
        at = f"{example.event_time:%Y-%m-%d %H:%M:%S}"
        console.print(line(f"        {at}  {example.event_id}  {example.group}  {example.text}"), soft_wrap=True)
