"""`nightjar status`: shows whether the job is running and how far behind it is."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from nightjar.cli.context import Context

if TYPE_CHECKING:
    from nightjar.operations.status import JobStatus
    from nightjar.terminal.console import SafeConsole


# Clock skew between the job's host and the brokers (seconds) from which a warning is shown.
_SKEW_SHOWN = 2.0


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("status")(status)


def status(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """Show whether the job is running, its lag, batch times, latency, state size and rules.

    The exit code is 1 if it is not running.
    """
    from nightjar.operations.status import read_status
    from nightjar.terminal.console import show_json

    context = Context()
    found = read_status(context.settings)
    if as_json:
        show_json(found.as_dict())
    else:
        _show(context.console, found)
    if not found.running:
        raise typer.Exit(1)


def _show(console: "SafeConsole", found: "JobStatus") -> None:
    from nightjar.terminal.console import counted, line
    from nightjar.terminal.tables import RecordTable, number

    last = found.last
    if not last:
        never = ("The job has not run yet.", "bold red")
        console.print(line(never, " `nightjar up` or `nightjar stream` starts it."))
        _show_skipped(console, found)
        return
    mark = ("running", "bold green") if found.running else ("not running", "bold red")
    heartbeat = f"  last heartbeat {found.heartbeat_seconds:,.1f} s ago"
    console.print(line(mark, heartbeat, f", process {last['process']}, last state: {last['state']}"), soft_wrap=True)
    counted_as = ("events", "late", "duplicates", "announced", "overflow")
    titles = ("events behind", "seconds behind", "seen", "late", "duplicates", "alert records", "overflow")
    table = RecordTable("stream", *map(number, titles))
    for name, lag in last["lag"].items():
        counts = found.counts.get(name, {})
        seen = [f"{counts.get(key, 0):,}" for key in counted_as]
        table.add_row(name, f"{lag['events']:,}", f"{lag['seconds']:,.1f}", *seen)
    console.print(table)
    for name, pace in found.pace.items():
        outlook = "not catching up at this rate"
        if pace.caught_up_in is not None:
            outlook = f"caught up in about {timedelta(seconds=round(pace.caught_up_in))}"
        console.print(
            line(f"{name}: reading {pace.read:,.0f} events/s, {pace.arriving:,.0f} events/s arriving: {outlook}"),
            soft_wrap=True,
        )
    if found.batches:
        parts = ", ".join(f"{name} {took:,.0f}" for name, took in found.batches["parts_ms"].items() if name != "whole")
        whole = found.batches["parts_ms"].get("whole", 0)
        title, one, several = "micro-batches", "batch", "batches"
        if last.get("mode") == "real-time":
            title, one, several = "real time", "group of records", "groups of records"
        console.print(
            line(
                f"{title}: average {whole:,.0f} ms over {counted(found.batches['batches'], one, several)}, "
                f"slowest {found.batches['slowest_ms']:,.0f} ms, "
                f"largest {counted(found.batches['most_rows'], 'record')}; average parts in ms: {parts}"
            ),
            soft_wrap=True,
        )
    if found.latency:
        p50, p99 = found.latency["p50_ms"], found.latency["p99_ms"]
        over = counted(int(found.latency["alerts"]), "alert")
        console.print(line(f"latency: p50 {p50:,.0f} ms, p99 {p99:,.0f} ms over the last {over}"))
    for stream, many in found.epoch_seconds.items():
        text = f"{stream}: {counted(many, 'recent late event')} dated between 1970 and 1973"
        hint = ": does a producer send epoch seconds? A number's unit is declared with the stream"
        console.print(line((text, "yellow"), hint), soft_wrap=True)
    for stream, groups in found.retained.items():
        shown = ", ".join(f"{rows:,} by {group_by or '(all)'}" for group_by, rows in groups.items())
        console.print(line(f"retained events of {stream}: {shown or 'none needed'}"), soft_wrap=True)
    if priming := last.get("priming"):
        key = priming["route"] or "(all)"
        read, since = counted(priming["read"], "event"), priming["since"]
        console.print(line(f"priming {priming['stream']} by {key}: {read} read, from {since} on"), soft_wrap=True)
    skew = (last.get("skew") or 0) / 1_000_000
    if abs(skew) > _SKEW_SHOWN:
        where = "ahead of" if skew > 0 else "behind"
        text = f"the clock of the job's host is {abs(skew):,.1f} s {where} the brokers' clock"
        effect = ": alerts are not affected, but the times in logs and `emitted_at` are off"
        console.print(line((text, "yellow"), effect), soft_wrap=True)
    for rule_id, rule in found.rules.items():
        text = f"rule {rule_id} version {rule['version']} on {rule['stream']}: {rule['state']}"
        console.print(line(text), soft_wrap=True)
    if not found.rules:
        console.print("no live rules: add some with `nightjar rules publish FILE`")
    _show_skipped(console, found)


def _show_skipped(console: "SafeConsole", found: "JobStatus") -> None:
    from nightjar.terminal.console import counted, line

    for kind, count in sorted(found.skipped.items()):
        console.print(line((f"skipped {counted(count, 'record')}: {kind}", "yellow")), soft_wrap=True)
