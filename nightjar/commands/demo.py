"""`nightjar demo`: the whole system on this machine."""

import typer

# In a file nothing is gained by wrapping at 80 columns.
_FILE_WIDTH = 140


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo)


def demo() -> None:
    """Start Kafka and the job, publish rules, replay two days with every flaw, and hold the alerts against the truth.

    The exit code is 0 only if every event is accounted for and late events explain every difference to the truth.
    Nothing of it stays: the folder is temporary, the port a free one.
    """
    from rich.console import Console

    from nightjar.demo.run import run

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _FILE_WIDTH
    if not run(console):
        raise typer.Exit(1)
