"""`nightjar pages`: shows alerts, nights and rules in a browser on this machine."""

from typing import Annotated

import typer

from nightjar.cli.context import Context


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("pages")(pages)


def pages(
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port on 127.0.0.1; 0: any that is free.")] = 8650,
) -> None:
    """Show alerts, why each exists, what the nights found, and the rules, in a browser, until Ctrl-C or SIGTERM.

    An alert can be labelled there, in the name of whoever runs this. Reads the lake, and new alerts from Kafka if it
    can be reached. Listens on this machine only; the address that is printed holds a token, drawn at each start. In
    Airflow the same pages are behind its login.
    """
    from nightjar.operations.labelling import send_labels
    from nightjar.operations.unarchived import OnKafka
    from nightjar.pages.application import application
    from nightjar.pages.lake_reader import LakeReader
    from nightjar.pages.live import LiveAlerts
    from nightjar.pages.serving import LocalAccess, bound, server_of
    from nightjar.terminal.console import line
    from nightjar.terminal.stages import announce_compiling

    context = Context()
    context.log_as_configured()
    announce_compiling()
    reader = LakeReader(context.backfill(), lambda: OnKafka(context.settings))
    live = LiveAlerts(context.settings, context.streams)
    access = LocalAccess()
    app = application(
        lambda: reader,
        lambda: live,
        access.guard,
        actor=access.actor,
        send=lambda label: send_labels(context.settings, [label]),
        links={},
    )
    access.protect(app)
    with bound(port) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/?token={access.token}"
        context.progress.print(line(("Pages", "bold"), f" at {address}"), soft_wrap=True)
        server_of(app).run([listening])
