"""`nightjar stream`: runs the job in the foreground, rebuilds its checkpoint, or declares a stream from examples."""

from pathlib import Path
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


@app.command()
def infer(
    file: Annotated[
        Path | None, typer.Argument(help="A file of JSON: an object in each line, or an array of them; also with .gz.")
    ] = None,
    topic: Annotated[str | None, typer.Option(help="A topic, whose newest records are the examples.")] = None,
    name: Annotated[str | None, typer.Option(help="Of the stream; else that of the topic or file.")] = None,
    records: Annotated[int, typer.Option(min=1, help="How many examples to look at.")] = 1000,
) -> None:
    """Print the declaration of a stream, made from example records, with what is doubtful as comments.

    It is meant to be read and corrected: append it to the file that the setting `streams` names.
    """
    from nightjar.operations.infer import declaration, file_examples, stream_name, topic_examples
    from nightjar.rules.errors import SettingsError
    from nightjar.terminal.console import lines

    context = Context()
    if (file is None) == (topic is None):
        raise SettingsError("give a file or a topic", where="stream infer", remedy="As in --topic transfers")
    found = file_examples(file, records) if file is not None else topic_examples(context.settings, str(topic), records)
    name = name or stream_name(topic or str(file and file.name.split(".")[0]))
    context.console.print(lines(declaration(found, name, topic or name)), soft_wrap=True)
