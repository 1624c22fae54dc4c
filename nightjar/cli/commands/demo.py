"""`nightjar demo`: runs the whole system on this machine."""

from typing import Annotated

import typer

from nightjar.cli.context import Context


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo)


def demo(
    keep: Annotated[
        bool,
        typer.Option(
            "--keep", help="Leave everything running until Ctrl-C, and print the addresses of the pages and of Airflow."
        ),
    ] = False,
) -> None:
    """Start Kafka and the job, publish rules, replay two days of flawed events, and compare the alerts with the truth.

    The exit code is 0 only if every event is accounted for and late events explain every difference from the truth.
    Everything runs in a temporary folder on a free port and is removed at the end.
    """
    from nightjar.demo.run import run

    if not run(Context().console, keep_running=keep):
        raise typer.Exit(1)
