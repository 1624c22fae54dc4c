"""`nightjar status`: whether the job runs, and how far behind it is."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from nightjar.cli.console import SafeConsole
    from nightjar.operations.status import Status


# Seconds by which the job's host may differ from the brokers without a word.
_SKEW_SHOWN = 2.0


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("status")(status)


def status(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """Show whether the job runs, how far it is behind, what its batches cost, its latency, its state and its rules.

    The exit code is 1 when it does not run.
    """
    from nightjar.cli.console import result_console, show_json
    from nightjar.configuration.settings import load_settings
    from nightjar.operations.status import read_status

    found = read_status(load_settings())
    if as_json:
        show_json(found.as_dict())
    else:
        _show(result_console(), found)
    if not found.running:
        raise typer.Exit(1)


def _show(console: "SafeConsole", found: "Status") -> None:
    from rich.table import Table

    from nightjar.cli.console import counted, line

    last = found.last
    if not last:
        never = ("The job has not run yet.", "bold red")
        console.print(line(never, " `nightjar up` or `nightjar stream` starts it."))
        _show_skipped(console, found)
        return
    mark = ("running", "bold green") if found.running else ("not running", "bold red")
    heard = f"  last heartbeat {found.heartbeat_seconds:,.1f} s ago"
    console.print(line(mark, heard, f", process {last['process']}, last state: {last['state']}"), soft_wrap=True)
    table = Table("stream", "events behind", "seconds behind", "seen", "late", "duplicates", title_justify="left")
    for name, lag in last["lag"].items():
        counts = found.counts.get(name, {})
        seen = [f"{counts.get(key, 0):,}" for key in ("events", "late", "duplicates")]
        table.add_row(name, f"{lag['events']:,}", f"{lag['seconds']:,.1f}", *seen)
    console.print(table)
    for name, pace in found.pace.items():
        ends = "it does not catch up at this pace"
        if pace.caught_up_in is not None:
            ends = f"caught up in about {timedelta(seconds=round(pace.caught_up_in))}"
        console.print(
            line(f"{name}: {pace.read:,.0f} events/s read, {pace.arriving:,.0f} events/s arrive: {ends}"),
            soft_wrap=True,
        )
    if found.batches:
        parts = ", ".join(f"{name} {took:,.0f}" for name, took in found.batches["parts_ms"].items() if name != "whole")
        whole = found.batches["parts_ms"].get("whole", 0)
        console.print(
            line(
                f"micro-batches: {whole:,.0f} ms on average over {found.batches['batches']:,} of them, the slowest "
                f"{found.batches['slowest_ms']:,.0f} ms, the largest {counted(found.batches['most_rows'], 'record')}; "
                f"parts in ms: {parts}"
            ),
            soft_wrap=True,
        )
    if found.latency:
        p50, p99 = found.latency["p50_ms"], found.latency["p99_ms"]
        over = counted(int(found.latency["alerts"]), "alert")
        console.print(line(f"latency: p50 {p50:,.0f} ms, p99 {p99:,.0f} ms over the last {over}"))
    for stream, groups in found.retained.items():
        shown = ", ".join(f"{rows:,} by {group_by or '(all)'}" for group_by, rows in groups.items())
        console.print(line(f"retained events of {stream}: {shown or 'none needed'}"), soft_wrap=True)
    skew = (last.get("skew") or 0) / 1_000_000
    if abs(skew) > _SKEW_SHOWN:
        where = "ahead of" if skew > 0 else "behind"
        text = f"the clock of the job's host is {abs(skew):,.1f} s {where} that of the brokers"
        console.print(line((text, "yellow"), ": it decides nothing, but logs and `emitted_at` show it"), soft_wrap=True)
    for rule_id, rule in found.rules.items():
        text = f"rule {rule_id} version {rule['version']} on {rule['stream']}: {rule['state']}"
        console.print(line(text), soft_wrap=True)
    if not found.rules:
        console.print("no live rule: `nightjar rules publish FILE` adds one")
    _show_skipped(console, found)


def _show_skipped(console: "SafeConsole", found: "Status") -> None:
    from nightjar.cli.console import counted, line

    for kind, count in sorted(found.skipped.items()):
        console.print(line((f"skipped {counted(count, 'record')}: {kind}", "yellow")), soft_wrap=True)
