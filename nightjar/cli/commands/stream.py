"""`nightjar stream`: runs the job in the foreground, or rebuilds its checkpoint."""

from typing import Annotated

import typer

from nightjar.cli.context import Context

app = typer.Typer(name="stream", invoke_without_command=True)


def register(main: typer.Typer) -> None:
    """Add the commands."""
    main.add_typer(app)


@app.callback()
def stream(invoked: typer.Context) -> None:
    """Run the job until it is stopped: read events and rules from Kafka, write alerts to Kafka.

    SIGTERM and Ctrl-C stop it cleanly: it finishes its micro-batch, and the next start resumes from there. In real time
    the next start repeats what was not committed.
    """
    if invoked.invoked_subcommand is not None:
        return
    from nightjar.operations.job_run import run_job

    context = Context()
    context.log_as_configured()
    run_job(context.settings, context.streams)


@app.command()
def rebuild(
    buckets: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Buckets of the new checkpoint; else by the setting, or as before.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Rebuild the job's checkpoint from the lake, to resume with another release or other settings.

    The job must be stopped. The old checkpoint stays untouched until the new one is complete.
    """
    from nightjar.configuration import data_dir
    from nightjar.operations.rebuild import rebuild as rebuilt
    from nightjar.terminal.console import counted, show_json

    context = Context(buckets=buckets)
    settings = context.settings
    data_dir.prepare(settings.data_dir)
    done = rebuilt(settings, context.streams, context.stages)
    if as_json:
        show_json({"buckets": done.buckets, "events": done.events, "alerts": done.announcements, "begins": done.begins})
        return
    context.console.print(
        f"Rebuilt the checkpoint in {settings.checkpoint}: {counted(done.events, 'event')}, "
        f"{counted(done.announcements, 'alert')}.",
        soft_wrap=True,
    )
    if Context().settings.buckets not in (None, done.buckets):
        context.console.print(f"It has {done.buckets} buckets: set buckets = {done.buckets} before `nightjar stream`.")
