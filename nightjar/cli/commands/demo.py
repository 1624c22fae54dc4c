"""`nightjar demo`: the whole system on this machine."""

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo)


def demo() -> None:
    """Start Kafka and the job, publish rules, replay two days with disorder and garbage, and compare alerts and truth.

    The exit code is 0 only if every event is accounted for and late events explain every difference to the truth.
    It leaves nothing behind: the folder is temporary, the port a free one.
    """
    from nightjar.cli.console import result_console
    from nightjar.demo.run import run

    if not run(result_console()):
        raise typer.Exit(1)
