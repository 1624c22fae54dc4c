"""`nightjar archive`: copies Kafka records to the lake."""

from typing import Annotated

import typer

from nightjar.cli.context import Context


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
    from nightjar.operations.nights import archive_topics
    from nightjar.terminal.console import show_json

    context = Context()
    config = context.backfill(spark=True).lake
    done = archive_topics(context.settings, config, context.stages, leave_out_deleted=leave_out_deleted)
    if as_json:
        show_json({"seconds": done.seconds, "rows": done.rows})
        return
    for name, count in sorted(done.rows.items()):
        context.console.print(f"{name:<20} {count:>12,} records")
