"""`nightjar lake maintain`: looks after the lake's tables."""

from typing import Annotated

import typer

app = typer.Typer(name="lake", no_args_is_help=True, help="Look after the lake.")


def register(main: typer.Typer) -> None:
    """Add the commands."""
    main.add_typer(app)


@app.command()
def maintain(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False) -> None:
    """Merge small files, delete those that nothing needs any more, and remove rows by age (setting lake_retention).

    Waits for nobody: it fails if an archive or a backfill is running. May be stopped and repeated at any time.
    """
    import time

    from rich.table import Table

    from nightjar.cli.console import result_console, show_json
    from nightjar.cli.stages import Stages
    from nightjar.configuration import logs
    from nightjar.configuration.backfill import backfill_config
    from nightjar.configuration.settings import load_settings
    from nightjar.operations.lake_upkeep import upkeep
    from rules.streams import load_streams

    settings = load_settings()
    config = backfill_config(settings, load_streams(settings.streams))
    logs.configure("warning")
    stages, done = Stages(), []
    with stages.stage("Lake", str(config.lake.root)):
        for table in upkeep(settings, config, time.time_ns() // 1000):
            done.append(table)
            stages.note(f"{table.table}: {table.files_before:,} files, now {table.files:,}")
    if as_json:
        show_json([each.as_dict() for each in done])
        return
    shown = Table("table", "files before", "files", "MB", "rows removed", "files deleted")
    for each in done:
        numbers = (each.files_before, each.files, round(each.bytes / 1e6, 1), each.removed_rows, each.deleted_files)
        shown.add_row(each.table, *(f"{number:,}" for number in numbers))
    result_console().print(shown)
