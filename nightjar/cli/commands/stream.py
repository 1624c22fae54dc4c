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
        Path | None,
        typer.Argument(
            help="A file of JSON: an object in each line, or an array of them; also with .gz. "
            "Or a file of a schema: .avsc, .proto, or a compiled descriptor."
        ),
    ] = None,
    topic: Annotated[str | None, typer.Option(help="A topic, whose newest records are the examples.")] = None,
    name: Annotated[str | None, typer.Option(help="Of the stream; else that of the topic or file.")] = None,
    records: Annotated[int, typer.Option(min=1, help="How many examples to look at.")] = 1000,
    message: Annotated[str | None, typer.Option(help="The full name of one of several in a Protobuf file.")] = None,
) -> None:
    """Print the declaration of a stream, made from example records or a schema, with what is doubtful as comments.

    If the topic's records name schemas of the registry that the settings have, types are those of the newest schema.
    It is meant to be read and corrected: append it to the file that the setting `streams` names.
    """
    from nightjar.configuration.schemas import registry_of
    from nightjar.operations.infer import declaration, file_examples, stream_name, topic_examples
    from nightjar.operations.infer_schema import (
        SCHEMA_FILES,
        declaration_of_file,
        declaration_of_records,
        name_schemas,
    )
    from nightjar.rules.errors import SettingsError
    from nightjar.terminal.console import lines

    context = Context()
    if (file is None) == (topic is None):
        raise SettingsError("give a file or a topic", where="stream infer", remedy="As in --topic transfers")
    if message is not None and (file is None or file.suffix not in SCHEMA_FILES):
        raise SettingsError("is for a file of Protobuf", where="--message", remedy="Leave it out")
    name = name or stream_name(topic or str(file and file.name.split(".")[0]))
    registry = registry_of(context.settings)
    if file is not None and file.suffix in SCHEMA_FILES:
        text = declaration_of_file(file, name, message)
    elif file is not None:
        text = declaration(file_examples(file, records), name, name)
    else:
        found = topic_examples(context.settings, str(topic), records)
        if found and registry is not None and name_schemas(found):
            text = declaration_of_records(found, registry, name, str(topic))
        else:
            text = declaration(found, name, str(topic))
    context.console.print(lines(text), soft_wrap=True)
