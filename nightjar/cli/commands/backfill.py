"""`nightjar backfill`: re-evaluates a past day, compares the result with the stream's alerts, publishes corrections."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from nightjar.cli.context import Context

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nightjar.backfill.config import BackfillConfig
    from nightjar.backfill.run import Ended
    from nightjar.backfill.upkeep.pending import PendingDay
    from nightjar.contracts.snoozes import Snoozes
    from nightjar.rules.rulebook import RuleBook
    from nightjar.rules.streams import Stream
    from nightjar.terminal.console import SafeConsole
    from nightjar.terminal.tables import RecordTable


_LISTED = 5  # days
_COMPARED = (("rule_id", "rule_version"), ("live_rule_id", "live_version"))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("backfill")(backfill)


def backfill(
    day: Annotated[str | None, typer.Option(help="The day (UTC), like 2026-11-20.", show_default=False)] = None,
    days: Annotated[
        str | None, typer.Option(help="A range of days: 2026-11-01..2026-11-20.", show_default=False)
    ] = None,
    pending: Annotated[
        bool, typer.Option("--pending", help="All days without a finished run, or with rules newer than their run.")
    ] = False,
    rules: Annotated[str, typer.Option(help="Only these rules: comma-separated ids.")] = "",
    groups: Annotated[str, typer.Option(help="Only these groups: customer_id=c1,c2;terminal_id=m7.")] = "",
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show what would be corrected and write nothing. With --pending: list the days."
        ),
    ] = False,
    publish: Annotated[bool, typer.Option(help="Publish the corrections to Kafka.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per day.")] = False,
) -> None:
    """Re-evaluate a past day with all its events, explain every difference from the stream, publish corrections.

    Updates the archive first. A day can be run any number of times: unchanged corrections are not published again.
    The exit code is 1 if a day needs attention: either the quality gate rejected it and nothing of it was published,
    or corrections without a known cause were held back and everything else was published. Other days still run.
    """
    from nightjar.backfill.config import BackfillError
    from nightjar.backfill.upkeep.pending import pending_days
    from nightjar.operations.backfill_requests import days_of, request_of
    from nightjar.operations.nights import run_nights
    from nightjar.terminal.console import lines, show_json

    context = Context()
    config = context.backfill(spark=True)
    if pending and (day or days or rules or groups):
        raise BackfillError("takes no days, rules or groups", where="--pending", remedy="Leave them out")
    if pending and dry_run:
        _list(context.console, pending_days(config), as_json=as_json)
        return
    options: dict[str, Any] = {"rules": rules, "groups": groups, "dry_run": dry_run, "publish": publish}
    requests = None if pending else [request_of(wanted, context.streams, **options) for wanted in days_of(day, days)]
    found: list[Ended] = []
    for ended in run_nights(context.settings, config, requests, context.stages, publish=publish):
        found.append(ended)
        if ended.verdict is not None:
            context.progress.print(lines(str(ended.verdict), "red"), soft_wrap=True)
        if as_json:
            show_json(_as_json(ended))
    if not as_json:
        _show(context.console, config, found, dry_run=dry_run)
    if not dry_run and (still := pending_days(config)):
        listed = "; ".join([*map(str, still[:_LISTED]), *(["..."] if len(still) > _LISTED else [])])
        text = f"pending days: {len(still)} ({listed}). `nightjar backfill --pending` runs them"
        context.progress.print(text, soft_wrap=True)
    if any(ended.verdict for ended in found):
        raise typer.Exit(1)


def _list(console: "SafeConsole", days: "list[PendingDay]", *, as_json: bool) -> None:
    from nightjar.terminal.console import show_json

    for found in days:
        if as_json:
            show_json({"day": found.day.isoformat(), "why": found.why})
        else:
            console.print(str(found), soft_wrap=True)
    if not days and not as_json:
        console.print("no day is pending")


def _show(console: "SafeConsole", config: "BackfillConfig", found: "list[Ended]", *, dry_run: bool) -> None:
    from nightjar.backfill.gate.gating import docs_folder
    from nightjar.lake import stream_state
    from nightjar.lake.snoozes import archived_snoozes

    console.print(_table(found, dry_run=dry_run) if found else "no day is pending")
    if any("shadows" in ended.counts for ended in found):
        console.print(_shadow_table(found))
    if known := next((ended.counts["precision"] for ended in reversed(found) if "precision" in ended.counts), None):
        console.print(_precision_table(known))
    if any("snoozed" in ended.counts for ended in found):
        book = stream_state.rule_book(config.lake.root, config.streams)
        console.print(_snoozed_table(archived_snoozes(config.lake.root), book, config.streams, found))
    console.print(f"data docs: {docs_folder(config.lake.root) / 'site' / 'index.html'}", soft_wrap=True)


def _as_json(ended: "Ended") -> dict[str, Any]:
    result = {"day": ended.request.day.isoformat(), "run_id": ended.request.run_id, **ended.counts}
    return result if ended.verdict is None else {**result, "verdict": str(ended.verdict)}


def _precision_table(known: "list[dict[str, Any]]") -> "RecordTable":
    """Of the last day's run, as each has all that was known."""
    from nightjar.backfill.publish.precision import PRECISION_DAYS, read_precision
    from nightjar.cli.commands.alert_labels import precision_table

    title = f"labelled alerts of {PRECISION_DAYS} days, as known at the run"
    return precision_table(map(read_precision, known), title=title)


def _snoozed_table(
    known: "Snoozes", book: "RuleBook", streams: "Mapping[str, Stream]", found: "list[Ended]"
) -> "RecordTable":
    """The snoozes of each day, with the alerts that they cover; groups without values of sensitive fields."""
    from nightjar.backfill.publish.snoozed import read_snoozed
    from nightjar.operations.snoozing import shown_group
    from nightjar.rules.timestamps import iso_text
    from nightjar.terminal.tables import RecordTable, number, prose

    said = (prose("group"), number("alerts"), "until", "author", prose("reason"))
    table = RecordTable("day", "rule", *said, title="snoozed groups")
    for ended in found:
        for written in ended.counts.get("snoozed", ()):
            of, snooze = read_snoozed(written, known)
            about = ("forgotten", f"{of.alerts:,}", "", "", "")
            if snooze is not None:
                until, group = f"{iso_text(snooze.until)[:16]}Z", shown_group(snooze, book, streams)
                about = (group, f"{of.alerts:,}", until, snooze.author, snooze.reason)
            table.add_row(ended.request.day.isoformat(), of.rule_id, *about)
    return table


def _shadow_table(found: "list[Ended]") -> "RecordTable":
    from nightjar.terminal.tables import RecordTable, number

    counts = map(number, ("alerts", "live alerts", "gained", "lost", "changed"))
    table = RecordTable("day", "shadow rule", "live rule", *counts, title="shadow rules beside the live rules")
    for ended in found:
        for each in ended.counts.get("shadows", ()):
            numbers = [f"{each[name]:,}" for name in ("alerts", "live_alerts", "gained", "lost", "changed")]
            shadow, live = (f"{each[of]} v{each[number]}" for of, number in _COMPARED)
            table.add_row(f"{ended.request.day}", shadow, live, *numbers)
    return table


def _table(found: "list[Ended]", *, dry_run: bool) -> "RecordTable":
    from nightjar.terminal.tables import RecordTable, number, prose

    outcomes = ("matched", "missed", "revised", "retracted")
    table = RecordTable(
        "day",
        *map(number, ("violations", "muted", "overflow", *outcomes)),
        prose("causes"),
        *map(number, ("corrections", "held back", "published")),
        title="outcome of the alerts" + (" (dry run: nothing was written)" if dry_run else ""),
    )
    for ended in found:
        counts = ended.counts  # a rejected run has none for the stages it did not reach
        causes = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.get("causes", {}).items()))
        per_outcome = [f"{counts['outcomes'].get(name, 0):,}" if "outcomes" in counts else "" for name in outcomes]
        numbers = [
            f"{counts[name]:,}" if name in counts else ""
            for name in ("violations", "muted", "overflow", "corrections", "held_back", "published")
        ]
        table.add_row(f"{ended.request.day}", *numbers[:3], *per_outcome, causes, *numbers[3:])
    return table
