"""`nightjar archive`: copies Kafka records to the lake."""

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("archive")(archive)


def archive(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    leave_out_deleted: Annotated[
        bool, typer.Option(help="Skip records that Kafka deleted before they were archived, instead of failing.")
    ] = False,
) -> None:
    """Copy the new records of every topic to the Delta tables of the lake, each exactly once."""
    from dataclasses import replace

    from nightjar.configuration import data_dir, logs
    from nightjar.configuration.lake import lake_config
    from nightjar.configuration.settings import load_settings
    from nightjar.kafka.clients import refuse_others
    from nightjar.lake.archive import archive as archived
    from nightjar.lake.session import open_session
    from nightjar.operations.locks import sole_writer
    from nightjar.rules.streams import load_streams
    from nightjar.terminal.console import result_console, show_json
    from nightjar.terminal.stages import Stages

    settings = load_settings()
    config = lake_config(settings, load_streams(settings.streams))
    refuse_others(settings)
    logs.configure("warning")
    data_dir.prepare(settings.data_dir)
    stages = Stages()
    with sole_writer(config.root) as fence:
        config = replace(config, fence=fence)
        with stages.stage("Spark", "starting"):
            session = open_session(config)
        with stages.stage("Archive", f"{settings.bootstrap} to {config.root}"):
            done = archived(session, config, leave_out_deleted=leave_out_deleted)
    if as_json:
        show_json({"seconds": done.seconds, "rows": done.rows})
        return
    console = result_console()
    for name, count in sorted(done.rows.items()):
        console.print(f"{name:<20} {count:>12,} records")
