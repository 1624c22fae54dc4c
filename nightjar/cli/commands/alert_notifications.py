"""`nightjar alerts notify` and `undelivered`: alerts as messages to webhooks, channels and mailboxes."""

from typing import TYPE_CHECKING, Annotated

import typer

from nightjar.cli.context import Context
from nightjar.rules.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nightjar.notifications.outbox import GivenUp
    from nightjar.terminal.tables import RecordTable


def notify(
    from_beginning: Annotated[
        bool,
        typer.Option("--from-beginning", help="The first time begin with the alerts that are there already."),
    ] = False,
    test: Annotated[
        str | None,
        typer.Option(metavar="TARGET", help="Only send this target a message that is a test.", show_default=False),
    ] = None,
) -> None:
    """Send alerts to webhooks, channels and mailboxes, by the routes of `alert_routes`, until Ctrl-C or SIGTERM.

    Each target is told of an alert, and of its retraction, at least once, with the same key each time. What is not
    delivered yet stays in the outbox, also if this command ends. docs/how-to/notify.md has the file of routes and the
    messages. Values of sensitive fields are masked.
    """
    from nightjar.metrics.server import Endpoint, MetricsServer
    from nightjar.notifications.notifier import Notifier, send_test
    from nightjar.notifications.routes import REMEDY, load_routes
    from nightjar.terminal.console import line
    from nightjar.terminal.stages import stop_requested

    context = Context()
    context.log_as_configured()
    settings = context.settings
    if settings.alert_routes is None:
        raise SettingsError("is empty", where="alert_routes", remedy=f"Give a file of routes: {REMEDY}")
    routes = load_routes(settings.alert_routes)
    if test is not None:
        send_test(routes, test)
        context.progress.print(line(f"{test} has accepted a test"))
        return
    notifier = Notifier(settings, context.streams, routes)
    endpoint = Endpoint.of(settings, settings.notifier_port)
    with (
        stop_requested() as stop,
        MetricsServer(endpoint, notifier.metrics.registry, lambda: None, notifier.not_ready) as server,
    ):
        targets = ", ".join(routes.targets)
        context.progress.print(
            line(("Notifying", "bold"), f" {targets}; metrics at {server.address}/metrics"), soft_wrap=True
        )
        notifier.run(stop, from_beginning=from_beginning)


def undelivered(
    retry: Annotated[bool, typer.Option("--retry", help="Have them tried again.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per message.")] = False,
) -> None:
    """Show messages that `nightjar alerts notify` has given up, and why.

    A target has refused them, or was not there for `give_up_after`. They are kept for `alert_retention`.
    """
    from dataclasses import asdict

    from nightjar.notifications.delivery import now_us
    from nightjar.notifications.outbox import Outbox
    from nightjar.rules.timestamps import iso_text
    from nightjar.terminal.console import counted, show_json

    context = Context()
    with Outbox(context.settings.outbox_file) as outbox:
        found = outbox.given_up()
        if as_json:
            for each in found:
                times = {name: iso_text(getattr(each, name)) for name in ("made_at", "given_up_at")}
                show_json(asdict(each) | times)
        else:
            context.console.print(undelivered_table(found))
        if retry:
            context.progress.print(f"{counted(outbox.retry(now_us()), 'message')} will be tried again")


def undelivered_table(found: "Sequence[GivenUp]") -> "RecordTable":
    """The messages that were given up."""
    from nightjar.rules.timestamps import iso_text
    from nightjar.terminal.console import counted
    from nightjar.terminal.tables import RecordTable, number, prose

    table = RecordTable(
        "target", "made at", number("alerts"), number("attempts"), prose("last failure"), "key",
        title=f"{counted(len(found), 'message')} given up",
    )  # fmt: skip
    for each in found:
        made_at = iso_text(each.made_at)[:19].replace("T", " ")
        table.add_row(each.target, made_at, f"{each.alerts:,}", f"{each.attempts:,}", each.reason, each.key)
    return table
