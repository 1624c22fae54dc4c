"""`nightjar up`: runs a local Kafka, unless one is configured, and the job."""

from contextlib import suppress

import typer

from nightjar.cli.context import Context


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("up")(up)


def up() -> None:
    """Start a local Kafka (unless bootstrap_servers is set), create the topics, and run the job until Ctrl-C.

    A job that dies is started again, later each time; after six deaths within minutes it ends with the last error.
    All local data is kept in `data_dir`, and the next start resumes from it.
    """
    from nightjar.operations.local_run import everything_started
    from nightjar.terminal.console import line
    from nightjar.terminal.stages import terminated_as_interrupt

    context = Context()
    with (
        terminated_as_interrupt(),
        everything_started(context.settings, context.streams, context.stages) as keep_running,
    ):
        context.progress.print(
            line(
                ("nightjar is up.", "bold green"),
                " Publish rules with `nightjar rules publish FILE`, watch with `nightjar alerts tail` and "
                "`nightjar status`. Ctrl-C stops everything.",
            ),
            soft_wrap=True,
        )
        with suppress(KeyboardInterrupt):
            keep_running()
