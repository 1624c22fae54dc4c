"""`nightjar alerts`: shows alerts as they arrive, forwards them, sends messages of them, says what they were, and whom
they need not interest for a time."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nightjar.cli.commands import alert_labels, alert_notifications, alert_snoozes
from nightjar.cli.context import Context
from nightjar.rules.errors import SettingsError

if TYPE_CHECKING:
    from nightjar.operations.alert_table import AlertTable
    from nightjar.operations.alert_topic import AlertTopic

app = typer.Typer(name="alerts", help="Show, forward, send, label or snooze the job's alerts.", no_args_is_help=True)


def register(main: typer.Typer) -> None:
    """Add the commands."""
    app.command("label")(alert_labels.label_alert)
    app.command("import-labels")(alert_labels.import_labels)
    app.command("precision")(alert_labels.show_precision)
    app.command("snooze")(alert_snoozes.snooze)
    app.command("unsnooze")(alert_snoozes.unsnooze)
    app.command("snoozes")(alert_snoozes.show_snoozes)
    app.command("notify")(alert_notifications.notify)
    app.command("undelivered")(alert_notifications.undelivered)
    main.add_typer(app)


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
    from nightjar.kafka.readers import Reader
    from nightjar.operations.alert_masks import AlertMasks
    from nightjar.operations.alert_tail import AlertTail
    from nightjar.terminal.alert_lines import alert_line
    from nightjar.terminal.console import show_json

    context = Context()
    masks = None if reveal else AlertMasks(context.settings, context.streams)
    tail = AlertTail(rule=rule, unmuted=unmuted, overflow=overflow or as_json, per_hour=per_hour, masks=masks)

    def summarise() -> None:
        for each in tail.summary():
            context.progress.print(each, soft_wrap=True)

    shown = 0
    with ExitStack() as at_end:
        at_end.callback(summarise)
        reader = at_end.enter_context(Reader(context.settings, context.settings.alerts_topic))
        if not from_beginning:
            reader.to_end()
        for alert in tail.chosen(reader.follow()):
            if isinstance(alert, str):
                context.progress.print(alert, soft_wrap=True)
                continue
            if as_json:
                latency = None if alert.latency is None else alert.latency / 1000
                show_json({**alert.record, "latency_ms": latency})
            else:
                context.console.print(alert_line(alert, context.console), soft_wrap=True)
            shown += 1
            if shown == count:
                return


@app.command()
def forward(
    postgres: Annotated[
        Path | None,
        typer.Option(
            help="To a database: the file that holds its connection string, readable by its owner only.",
            show_default=False,
        ),
    ] = None,
    table: Annotated[
        str, typer.Option(help="The table there, NAME or SCHEMA.NAME; it is created if it is missing.")
    ] = "nightjar_alerts",
    avro: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC",
            help="To this topic, in Avro, with a schema in `schema_registry`; it is created if it is missing.",
            show_default=False,
        ),
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Stop where the alerts end at the start, instead of waiting for more.")
    ] = False,
) -> None:
    """Forward alerts to a table in PostgreSQL or to a topic in Avro, until Ctrl-C or SIGTERM.

    The table has the latest revision of each alert, exactly once; the topic has every record, at least once.
    docs/how-to/forward-alerts.md has the rights that it needs. Values of sensitive fields are forwarded as they are.
    """
    from nightjar.operations.alert_forwarding import forward
    from nightjar.terminal.console import counted
    from nightjar.terminal.stages import stop_requested

    context = Context()
    context.log_as_configured()
    if postgres is not None and avro is None:
        target: AlertTable | AlertTopic = _alert_table(postgres, table, context.settings.alerts_topic)
        name = f"table {table}"
    elif avro is not None and postgres is None:
        from nightjar.operations import alert_topic

        target, name = alert_topic.AlertTopic(context.settings, context.streams.values(), avro), f"topic {avro}"
    else:
        raise SettingsError("needs one target", where="alerts forward", remedy="Give either --postgres or --avro")
    with stop_requested() as stop, target:
        context.progress.print(f"Forwarding {context.settings.alerts_topic} to {name}", soft_wrap=True)
        done = forward(context.settings, target, stop, until_end=until_end)
    skipped = done.skipped.counts.total()
    context.progress.print(f"Forwarded {counted(done.alerts, 'record')}, skipped {skipped:,} that are no alerts")


def _alert_table(file: Path, table: str, topic: str) -> "AlertTable":
    try:
        from nightjar.operations.alert_table import AlertTable, connection_string
    except ModuleNotFoundError as missing:
        remedy = 'Install the extra: pip install "nightjar[postgres]"'
        raise SettingsError(f"the package {missing.name} is missing", where="--postgres", remedy=remedy) from None
    return AlertTable(connection_string(file), table, topic)
