"""The command line: `nightjar COMMAND`.

Exit codes: 0 success; 1 the command ran, but what it checked does not hold; 2 bad input or usage, or an unreachable
service; 130 interrupted. Results go to standard output, an error is one message on standard error.
"""

import os
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from nightjar.rules.errors import NightjarError
from nightjar.terminal.console import result_console, show_error

# Modules of nightjar.cli.commands, each of which registers the command of its name.
COMMANDS = (
    "airflow",
    "alerts",
    "archive",
    "backfill",
    "backtest",
    "demo",
    "evaluate",
    "explain",
    "generate",
    "jars",
    "lake",
    "metrics",
    "pages",
    "replay",
    "rules",
    "simulate",
    "status",
    "stream",
    "table",
    "topics",
    "up",
)

app = typer.Typer(
    name="nightjar",
    help="Rule-based fraud and anomaly detection on event streams.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for name in COMMANDS:
    import_module(f"nightjar.cli.commands.{name}").register(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        result_console().print(version("nightjar"))
        raise typer.Exit


@app.callback()
def _common(
    settings: Annotated[
        Path | None, typer.Option(help="TOML file of settings, instead of nightjar.toml.", show_default=False)
    ] = None,
    show_version: Annotated[  # noqa: ARG001  its callback does the work
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    from nightjar.configuration import logs

    logs.configure("warning")
    if settings is not None:
        os.environ["NIGHTJAR_SETTINGS"] = str(settings)  # so that processes started from here read the same file


def main() -> None:
    """Run the command line and exit."""
    try:
        app()
    except NightjarError as error:
        show_error(error)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output went away (`| head`); Python must not try to flush to it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


if __name__ == "__main__":
    main()
