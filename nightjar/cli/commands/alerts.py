"""`nightjar alerts tail`: shows alerts as they arrive."""

from contextlib import ExitStack
from typing import Annotated

import typer

app = typer.Typer(name="alerts", help="Show the job's alerts.", no_args_is_help=True)


def register(main: typer.Typer) -> None:
    """Add the commands."""
    main.add_typer(app)


@app.callback()
def _group() -> None:
    """Keep the group while it has one command."""


@app.command()
def tail(
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="Show earlier alerts first.")] = False,
    rule: Annotated[str | None, typer.Option(help="Only alerts of this rule.", show_default=False)] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Stop after this many alerts.", show_default=False)
    ] = None,
    unmuted: Annotated[
        bool, typer.Option("--unmuted", help="Leave out muted alerts; their number is printed at the end.")
    ] = False,
    per_hour: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Show at most this many alerts of a rule in an hour of event time, with their revisions; how many "
            "records were left out is printed at the end.",
            show_default=False,
        ),
    ] = None,
    overflow: Annotated[
        bool,
        typer.Option(
            "--overflow",
            help="Also show alerts that are marked `overflow`, beyond `alerts_per_rule_and_hour`. Otherwise they are "
            "counted; --json always prints them.",
        ),
    ] = False,
    reveal: Annotated[bool, typer.Option("--reveal", help="Show the values of sensitive fields.")] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print the records, one per line, with latency_ms; without --reveal also masked."),
    ] = False,
) -> None:
    """Show alerts as they arrive: event time, severity, rule, group, text, id (for `nightjar explain`), latency.

    Latency is the time from the event's sending to the alert's arrival on its topic, however late it is shown.
    Revisions, retractions and muted alerts are marked; of alerts beyond the cap of an hour the number is shown. Stop
    with Ctrl-C.
    """
    from nightjar.cli.alert_cap import AlertCap, Flood
    from nightjar.cli.alert_masks import AlertMasks
    from nightjar.configuration.settings import load_settings
    from nightjar.kafka.readers import Reader, Skipped
    from nightjar.rules.errors import printable
    from nightjar.rules.streams import load_streams
    from nightjar.terminal.alert_lines import alert_line, alert_of
    from nightjar.terminal.console import counted, progress_console, result_console, show_json

    settings = load_settings()
    masks = None if reveal else AlertMasks(settings, load_streams(settings.streams))
    console = result_console()
    shown = muted = 0
    skipped, cap = Skipped(), None if per_hour is None else AlertCap(per_hour)
    flood = Flood()

    def summarise() -> None:
        if unmuted:
            progress_console().print(f"{counted(muted, 'muted alert')} left out")
        for name, left_out in sorted(cap.left_out.items()) if cap else ():
            words = f"{printable(name)}: {counted(left_out, 'record')} left out, beyond {per_hour} alerts an hour"
            progress_console().print(words, soft_wrap=True)
        for words in flood.summary():
            progress_console().print(words, soft_wrap=True)

    with ExitStack() as at_end:
        at_end.callback(summarise)
        reader = at_end.enter_context(Reader(settings, settings.alerts_topic))
        if not from_beginning:
            reader.to_end()
        for record in reader.follow():
            alert = alert_of(record)
            if alert is None:
                skipped.add(record, "not an alert")
                continue
            if rule not in (None, alert.record["rule_id"]):
                continue
            if unmuted and alert.record["muted"]:
                muted += 1
                continue
            if alert.record.get("overflow") is True and not (overflow or as_json):
                if (words := flood.take(alert.record)) is not None:
                    progress_console().print(words, soft_wrap=True)
                continue
            if cap is not None and not cap.admits(alert.record):
                continue
            if masks is not None:
                alert = alert._replace(record=masks.masked(alert.record))
            if as_json:
                latency = None if alert.latency is None else alert.latency / 1000
                show_json({**alert.record, "latency_ms": latency})
            else:
                console.print(alert_line(alert, console), soft_wrap=True)
            shown += 1
            if shown == count:
                return
