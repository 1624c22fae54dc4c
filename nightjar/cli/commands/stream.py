"""`nightjar stream`: runs the job in the foreground, or rebuilds its checkpoint."""

from typing import Annotated

import typer

app = typer.Typer(name="stream", invoke_without_command=True)


def register(main: typer.Typer) -> None:
    """Add the commands."""
    main.add_typer(app)


@app.callback()
def stream(context: typer.Context) -> None:
    """Run the job until it is stopped: read events and rules from Kafka, write alerts to Kafka.

    SIGTERM and Ctrl-C stop it cleanly: it finishes its batch, and the next start resumes from there.
    """
    if context.invoked_subcommand is not None:
        return
    from dataclasses import replace

    from nightjar.configuration import data_dir, logs
    from nightjar.configuration.job import job_config
    from nightjar.configuration.settings import load_settings
    from nightjar.kafka import topics
    from nightjar.kafka.clients import refuse_others
    from nightjar.operations.locks import sole_job
    from nightjar.rules.streams import load_streams
    from nightjar.streaming.driver.session import starting

    settings = load_settings()
    streams = load_streams(settings.streams)
    config = job_config(settings, streams)
    refuse_others(settings)
    logs.configure(settings.log_level)
    data_dir.prepare(settings.data_dir)
    with sole_job(config.checkpoint) as fence, starting(replace(config, fence=fence)) as session:
        from nightjar.streaming import job  # the engine's imports take a second, while the JVM starts

        job.run(replace(config, fence=fence), session, prepare=lambda: topics.ensure(settings, streams.values()))


@app.command()
def rebuild(
    buckets: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of buckets in the new checkpoint, instead of the setting.", show_default=False
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Rebuild the job's checkpoint from the lake, to resume with another release or other settings.

    The job must be stopped. The old checkpoint stays untouched until the new one is complete.
    """
    from nightjar.configuration import data_dir, logs
    from nightjar.configuration.settings import load_settings
    from nightjar.operations.rebuild import rebuild as rebuilt
    from nightjar.rules.streams import load_streams
    from nightjar.terminal.console import counted, result_console, show_json
    from nightjar.terminal.stages import Stages

    configured = load_settings()
    settings = configured if buckets is None else load_settings(buckets=buckets)
    logs.configure("warning")
    data_dir.prepare(settings.data_dir)
    done = rebuilt(settings, load_streams(settings.streams), Stages())
    if as_json:
        show_json({"buckets": settings.buckets, "events": done.events, "alerts": done.announcements,
                   "begins": done.begins})  # fmt: skip
        return
    console = result_console()
    console.print(
        f"Rebuilt the checkpoint in {settings.checkpoint}: {counted(done.events, 'event')}, "
        f"{counted(done.announcements, 'alert')}.",
        soft_wrap=True,
    )
    if settings.buckets != configured.buckets:
        console.print(f"It has {settings.buckets} buckets: set buckets = {settings.buckets} before `nightjar stream`.")
