"""`nightjar status`: is the job running, and how does it stand."""

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from nightjar.status import Status


# Seconds by which the job's host may differ from the brokers without a word.
_SKEW_SHOWN = 2.0


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("status")(status)


def status(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """Show whether the job runs, how far it is behind, what its batches cost, its latency, its state and its rules.

    The exit code is 1 when it does not run.
    """
    from nightjar.console import result_console
    from nightjar.settings import load_settings
    from nightjar.status import read_status

    found = read_status(load_settings())
    if as_json:
        typer.echo(json.dumps(found.as_dict()))
    else:
        _show(result_console(), found)
    if not found.running:
        raise typer.Exit(1)


def _show(console: "Console", found: "Status") -> None:
    from rich.table import Table

    told = found.told
    if not found.told:
        console.print("[bold red]The job has not run yet.[/] `nightjar up` or `nightjar stream` starts it.")
        return
    ago = f"last heard of {found.heartbeat_seconds:,.1f} s ago"
    mark = "[bold green]running[/]" if found.running else "[bold red]not running[/]"
    console.print(f"{mark}  {ago}, process {told['process']}, last state: {told['state']}", soft_wrap=True)
    table = Table("stream", "events behind", "seconds behind", "seen", "late", "duplicates", title_justify="left")
    for name, lag in told["lag"].items():
        counts = found.counts.get(name, {})
        seen = [f"{counts.get(key, 0):,}" for key in ("events", "late", "duplicates")]
        table.add_row(name, f"{lag['events']:,}", f"{lag['seconds']:,.1f}", *seen)
    console.print(table)
    for name, pace in found.pace.items():
        ends = "it does not catch up at this pace"
        if pace.caught_up_in is not None:
            ends = f"caught up in about {timedelta(seconds=round(pace.caught_up_in))}"
        console.print(f"{name}: {pace.read:,.0f} events/s read, {pace.arriving:,.0f} events/s come: {ends}")
    if found.batches:
        parts = ", ".join(f"{name} {took:,.0f}" for name, took in found.batches["parts_ms"].items() if name != "whole")
        whole = found.batches["parts_ms"].get("whole", 0)
        console.print(
            f"micro-batches: {whole:,.0f} ms on average over {found.batches['batches']} of them, the slowest "
            f"{found.batches['slowest_ms']:,} ms, the largest {found.batches['most_rows']:,} records; "
            f"parts in ms: {parts}",
            soft_wrap=True,
        )
    if found.latency:
        p50, p99 = found.latency["p50_ms"], found.latency["p99_ms"]
        console.print(f"latency: p50 {p50:,.0f} ms, p99 {p99:,.0f} ms over the last {found.latency['alerts']:,} alerts")
    for stream, groups in found.retained.items():
        shown = ", ".join(f"{rows:,} by {group_by or '(all)'}" for group_by, rows in groups.items())
        console.print(f"retained events of {stream}: {shown or 'none needed'}", soft_wrap=True)
    skew = (told.get("skew") or 0) / 1_000_000
    if abs(skew) > _SKEW_SHOWN:
        console.print(
            f"[yellow]the clock of the job's host is {abs(skew):,.1f} s {'ahead of' if skew > 0 else 'behind'} that of "
            "the brokers[/]: it decides nothing, but logs and `emitted_at` show it",
            soft_wrap=True,
        )
    for rule_id, rule in found.rules.items():
        console.print(f"rule {rule_id} version {rule['version']} on {rule['stream']}: {rule['state']}")
    if not found.rules:
        console.print("no live rule: `nightjar rules publish FILE` adds one")
