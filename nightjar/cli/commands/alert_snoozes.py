"""`nightjar alerts snooze`, `unsnooze` and `snoozes`: groups that a rule's alerts need no attention for, for a time."""

from typing import Annotated

import typer

from nightjar.cli.context import Context
from nightjar.rules.errors import SettingsError

_Author = Annotated[str | None, typer.Option(help="Who says so. Default: the login name.", show_default=False)]
_TIME_REMEDY = "Write it like 2026-11-20T08:00:00Z"


def snooze(
    alert_id: Annotated[str, typer.Argument(metavar="ALERT", help="An alert's id: its rule is snoozed for its group.")],
    reason: Annotated[str, typer.Option(help="Why, in one line.", show_default=False)],
    duration: Annotated[
        str | None,
        typer.Option("--for", help="How long from now or `--since` on, such as 8h or 7d.", show_default=False),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            help="Or until when: a time like 2026-11-20T00:00:00Z, at most 366 days away.", show_default=False
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="From which event time on, such as the begin of a planned journey. Default: now.", show_default=False
        ),
    ] = None,
    author: _Author = None,
) -> None:
    """Exempt an alert's group from its rule for a time: who is notified of alerts is left alone.

    Alerts of the rule about the group, whose event times are in that time, are published and stored as ever, and right
    or wrong as ever; they are marked in the pages, counted, and `nightjar alerts notify` sends none of them. The snooze
    goes to the topic `snoozes`. `nightjar alerts unsnooze` ends it.
    """
    from nightjar.operations.labelling import alert_named, now
    from nightjar.operations.rule_publishing import login_name
    from nightjar.operations.snoozing import send_snoozes, snooze_of_alert
    from nightjar.operations.unarchived import OnKafka
    from nightjar.rules.durations import parse_duration
    from nightjar.rules.timestamps import after, iso_text
    from nightjar.terminal.console import line

    if (duration is None) == (until is None):
        raise SettingsError("needs an end", where="alerts snooze", remedy="Give either --for or --until")
    at = now()
    begin = at if since is None else _time("--since", since)
    end = _time("--until", until or "") if duration is None else after(max(at, begin), parse_duration(duration))
    context = Context()
    alert = alert_named(context.backfill().lake.root, alert_id, OnKafka(context.settings))
    who = author or login_name() or ""
    record = snooze_of_alert(alert, until=end, author=who, reason=reason, since=begin, at=at)
    send_snoozes(context.settings, [record])
    context.console.print(
        line("rule ", (alert.rule_id, "bold"), f" is snoozed for the alert's group until {iso_text(end)}"),
        soft_wrap=True,
    )


def unsnooze(
    alert_id: Annotated[str, typer.Argument(metavar="ALERT", help="An alert's id: of its rule and its group.")],
    reason: Annotated[str, typer.Option(help="Why, in one line.", show_default=False)],
    author: _Author = None,
) -> None:
    """End the snoozes of an alert's rule and group now. Event times before now stay snoozed."""
    from nightjar.operations.labelling import alert_named, now
    from nightjar.operations.rule_publishing import login_name
    from nightjar.operations.snoozing import ends_of_alert, read_snoozes, send_snoozes
    from nightjar.operations.unarchived import OnKafka
    from nightjar.terminal.console import counted, line

    context = Context()
    alert = alert_named(context.backfill().lake.root, alert_id, OnKafka(context.settings))
    records = ends_of_alert(
        read_snoozes(context.settings), alert, author=author or login_name() or "", reason=reason, at=now()
    )
    ended = counted(send_snoozes(context.settings, records), "snooze")
    context.console.print(line(f"ended {ended} of rule ", (alert.rule_id, "bold")), soft_wrap=True)


def show_snoozes(
    rule: Annotated[str | None, typer.Option(help="Only of this rule.", show_default=False)] = None,
    over: Annotated[bool, typer.Option("--all", help="Also those that are over.")] = False,
    reveal: Annotated[bool, typer.Option("--reveal", help="Show the values of sensitive fields.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
) -> None:
    """Show what is snoozed: rule, group, since when, until when, by whom and why. Reads the topic `snoozes`."""
    from nightjar.kafka.rule_topics import rule_book
    from nightjar.operations.labelling import now
    from nightjar.operations.snoozing import as_dict, read_snoozes, shown_group
    from nightjar.rules.rulebook import RuleBook
    from nightjar.rules.timestamps import iso_text
    from nightjar.terminal.console import show_json
    from nightjar.terminal.tables import RecordTable, prose

    context = Context()
    at, streams = now(), context.streams
    wanted = [
        each
        for each in read_snoozes(context.settings).every
        if rule in (None, each.rule_id) and (over or each.until > at)
    ]
    needed = not reveal and any(stream.sensitive for stream in streams.values())
    book = rule_book(context.settings, streams) if needed else RuleBook(streams)
    groups = [each.group if reveal else shown_group(each, book, streams) for each in wanted]
    if as_json:
        show_json([as_dict(each, group) for each, group in zip(wanted, groups, strict=True)])
    elif wanted:
        table = RecordTable("rule", "group", "since", "until", "", "by", prose("why"))
        for each, group in zip(wanted, groups, strict=True):
            state = each.kind if each.until <= at else "later" if each.since > at else "on"
            times = (iso_text(each.since)[:19] + "Z", iso_text(each.until)[:19] + "Z")
            table.add_row(each.rule_id, group, *times, "over" if state == "set" else state, each.author, each.reason)
        context.console.print(table)
    else:
        context.console.print("Nothing is snoozed: `nightjar alerts snooze` snoozes the group of an alert.")


def _time(option: str, written: str) -> int:
    from nightjar.rules.timestamps import parse_timestamp

    at = parse_timestamp(written, zone_required=False)
    if at is None:
        raise SettingsError("is not a time", where=f"{option} {written}", remedy=_TIME_REMEDY)
    return at
