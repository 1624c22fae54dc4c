"""`nightjar backtest`: what a rule would have announced on past days, before it is published."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nightjar.cli.context import Context

if TYPE_CHECKING:
    from nightjar.backfill.backtest.comparison import BacktestResult
    from nightjar.terminal.tables import RecordTable

_LISTED = 3  # live rules with common alerts


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("backtest")(backtest)


def backtest(
    rules: Annotated[Path, typer.Option(help="The drafts: rules as YAML or JSON.", show_default=False)],
    first: Annotated[str, typer.Option("--from", help="The first day (UTC), like 2026-11-01.", show_default=False)],
    last: Annotated[str, typer.Option("--to", help="The last day.", show_default=False)],
    threshold: Annotated[
        str | None,
        typer.Option(
            help="A measure or field that `when` compares with a constant: show how many alerts other constants give.",
            show_default=False,
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            help="Parquet, CSV or JSON lines (the last two also with .gz) with event ids and labels: show precision "
            "and recall. NULL, false, 0 and `genuine` label an event that is no fraud.",
            show_default=False,
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            help="The column of the labels; without --labels a field of the stream that is the label.",
            show_default=False,
        ),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="HTML report to write.", show_default=False)] = None,
    reason: Annotated[
        str | None,
        typer.Option(
            help="Why the drafts are proposed, for the HTML report; otherwise it has the `reason` of each draft.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per rule.")] = False,
) -> None:
    """Evaluate rules that are not live over past days of the lake, and compare them with the live rules.

    Shows alerts a day, what a draft gains and loses against the live version of the same rule, which other live rules
    alert on the same events, and the groups with the most alerts. Reads the lake as it is: `nightjar archive` brings it
    up to date. Publishes nothing.
    """
    from nightjar.backfill.backtest.report import as_mapping, write_report
    from nightjar.operations.backfill_requests import days_of
    from nightjar.operations.trial import try_rules
    from nightjar.rules.errors import SettingsError
    from nightjar.rules.model import load_rules
    from nightjar.terminal.console import lines, show_json

    context = Context()
    config = context.backfill(spark=True)
    days = days_of(None, f"{first}..{last}")
    drafts = load_rules(rules, context.streams)
    if html is not None and not html.parent.is_dir():
        raise SettingsError("cannot be written: the folder does not exist", where=str(html), remedy="Create it first")
    found = try_rules(
        context.settings, config, drafts, days, context.stages, threshold=threshold, labels=labels, label=label
    )
    if html is not None:
        write_report(found, html, reason)
    if as_json:
        for each in found:
            show_json(as_mapping(each))
        return
    context.console.print(_table(found))
    for each in found:
        for table in _details(each):
            context.console.print(table)
    if html is not None:
        context.console.print(lines(f"report: {html.resolve()}"), soft_wrap=True)


def _table(found: "list[BacktestResult]") -> "RecordTable":
    from nightjar.terminal.tables import RecordTable, number

    titles = ("alerts", "a day", "groups", "live", "gained", "lost", "changed", "precision", "recall")
    table = RecordTable("rule", *map(number, titles), title="alerts of the drafts")
    for each in found:
        change, quality = each.change, each.quality
        compared = ["none", "", "", ""]
        if change is not None:
            compared = [f"{n:,}" for n in (change.live_alerts, change.gained, change.lost, change.changed)]
        labelled = ["", ""] if quality is None else [_percent(quality.precision), _percent(quality.recall)]
        per_day = f"{each.alerts / len(each.days):,.1f}"
        table.add_row(each.rule_id, f"{each.alerts:,}", per_day, f"{each.groups:,}", *compared, *labelled)
    return table


def _details(found: "BacktestResult") -> "list[RecordTable]":
    from nightjar.terminal.console import line
    from nightjar.terminal.tables import RecordTable, number

    tables = []
    common = [other for other in found.overlaps if other.both][:_LISTED]
    if common:
        what, both = "live rules that alert on the same events", "common"
        if found.rule.allows:
            what, both = "live rules whose alerts it silences", "silenced"
        table = RecordTable("rule", number("its alerts"), number(both), title=f"{found.rule_id}: {what}")
        for other in common:
            table.add_row(other.rule_id, f"{other.alerts:,}", f"{other.both:,}")
        tables.append(table)
    if found.top_groups:
        from nightjar.backfill.backtest.report import in_words

        table = RecordTable("group", number("alerts"), title=f"{found.rule_id}: groups with the most alerts")
        for group, alerts in found.top_groups[:_LISTED]:
            table.add_row(in_words(group), f"{alerts:,}")
        tables.append(table)
    if found.curve is not None:
        curve = found.curve
        title = f"{found.rule_id}: {curve.name} {curve.operator} …, now {curve.current:,.6g}"
        table = RecordTable(*map(number, ("threshold", "alerts", "a day")), title=title)
        for point in found.thresholds:
            style = "bold" if point.threshold == curve.current else ""
            cells = (f"{point.threshold:,.6g}", f"{point.alerts:,}", f"{point.alerts / len(found.days):,.2f}")
            table.add_row(*(line((cell, style)) for cell in cells))
        tables.append(table)
    return tables


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"
