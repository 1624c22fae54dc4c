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
    """Show alerts, why each exists, what the nights found, rules, lists, and the stream in a browser, until Ctrl-C.

    Alerts can be labelled and lists changed there, in the name of whoever runs this. Reads the lake, and lists and new
    alerts from Kafka if it can be reached. Listens on this machine only; the address that is printed holds a token,
    drawn at each start. In Airflow the same pages are behind its login.
    """
    from nightjar.kafka.readers import keep_connections
    from nightjar.pages.local import local_pages
    from nightjar.pages.serving import address_of, bound, server_of
    from nightjar.terminal.console import line
    from nightjar.terminal.stages import announce_compiling

    context = Context()
    context.log_as_configured()
    announce_compiling()
    keep_connections()
    app, access = local_pages(context.settings, context.streams)
    with bound(port) as listening:
        address = address_of(listening, access)
        context.progress.print(line(("Pages", "bold"), f" at {address}"), soft_wrap=True)
        app.state.readiness.begin()
        server_of(app).run([listening])
        app.state.readiness.end()
