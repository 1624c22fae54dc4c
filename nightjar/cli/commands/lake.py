"""`nightjar lake`: looks after the lake's tables, repairs them, and erases people from them."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from nightjar.cli.commands.lake_repair import repair
from nightjar.cli.context import Context

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from nightjar.backfill.erasure.forgetting import Removal
    from nightjar.backfill.erasure.remains import Remains
    from nightjar.lake.maintenance import Maintained
    from nightjar.terminal.console import SafeConsole
    from nightjar.terminal.tables import RecordTable

app = typer.Typer(name="lake", no_args_is_help=True, help="Look after the lake.")


app.command("repair")(repair)


def register(main: typer.Typer) -> None:
    """Add the commands."""
    main.add_typer(app)


@app.command()
def maintain(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False) -> None:
    """Merge small files, delete those that nothing needs any more, and remove rows by age (setting lake_retention).

    Waits for nobody: it fails if an archive or a backfill is running. May be stopped and repeated at any time.
    """
    import time

    from nightjar.operations.lake_upkeep import upkeep
    from nightjar.terminal.console import show_json

    context, done = Context(), []
    config = context.backfill()
    with context.stages.stage("Lake", str(config.lake.root)):
        for table in upkeep(context.settings, config, time.time_ns() // 1000):
            done.append(table)
            context.stages.note(f"{table.table}: {table.files_before:,} files, now {table.files:,}")
    if as_json:
        show_json([each.as_dict() for each in done])
        return
    context.console.print(_maintained(done))


def _maintained(done: "Iterable[Maintained]") -> "RecordTable":
    """What was done to each table."""
    from nightjar.terminal.tables import RecordTable, number

    shown = RecordTable("table", *map(number, ("files before", "files", "MB", "rows removed", "files deleted")))
    for each in done:
        counts = (each.files_before, each.files, round(each.bytes / 1e6, 1), each.removed_rows, each.deleted_files)
        shown.add_row(each.table, *(f"{count:,}" for count in counts))
    return shown


@app.command()
def forget(
    key: Annotated[
        list[str],
        typer.Option(
            metavar="FIELD=VALUE",
            help="Whom to erase: a field and its value, as in customer_id=C123. Repeatable; - reads one per line from "
            "standard input, so that no value is in the shell's history.",
        ),
    ],
    stream: Annotated[
        list[str] | None, typer.Option(help="Search this stream only; repeatable. Default: all that have the field.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Erase. Without it, only show what would be erased.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Erase a person from the lake, and show what Kafka and the job still have, and until when.

    Erases events, alerts, results of past nights, quarantined originals, staged data and rows in data docs; in alerts
    of others the person's values are masked. It cannot be undone. Fails if an archive or a backfill is running.
    """
    import sys

    from nightjar.backfill.erasure.forgetting import searched_streams
    from nightjar.backfill.erasure.person import Person
    from nightjar.operations.forgetting import forget_person
    from nightjar.terminal.console import show_json

    context = Context()
    config = context.backfill()
    given = [line for each in key for line in (sys.stdin.read().splitlines() if each == "-" else [each])]
    person = Person.of(given)
    streams = searched_streams(config, stream or [], person)
    with context.stages.stage("Erasing" if yes else "Searching", str(config.lake.root)):
        removal, remains = forget_person(context.settings, config, person, streams, dry_run=not yes)
    if as_json:
        show_json(_as_json(removal, remains, erased=yes))
    else:
        _show(context.console, removal, remains, erased=yes)


def _as_json(removal: "Removal", remains: "Remains", *, erased: bool) -> dict[str, Any]:
    topics = (
        None
        if remains.topics is None
        else [
            {"topic": each.topic, "until": _iso(each.until), "unarchived": each.unarchived} for each in remains.topics
        ]
    )
    return {
        "erased": erased,
        "tables": {each.table: {"rows": each.rows, "masked": each.masked} for each in removal.tables},
        "staged_folders": removal.folders,
        "data_docs": removal.pages,
        "remains": {
            "topics": topics,
            "unknown": remains.unknown,
            "state": {name: _iso(until) for name, until in remains.state_until.items()},
            "rules": removal.rules,
            "other_fields": removal.other_fields,
        },
    }


def _iso(instant: "datetime | None") -> str | None:
    return None if instant is None else f"{instant:%Y-%m-%dT%H:%M:%SZ}"


def _show(console: "SafeConsole", removal: "Removal", remains: "Remains", *, erased: bool) -> None:
    from nightjar.terminal.console import counted
    from nightjar.terminal.tables import RecordTable, number

    verb = "erased" if erased else "to erase"
    others = "rows of others masked" if erased else "rows of others to mask"
    table = RecordTable("table", number(f"rows {verb}"), number(others))
    for each in removal.tables:
        table.add_row(each.table, f"{each.rows:,}", f"{each.masked:,}")
    if removal.tables:
        console.print(table)
    else:
        console.print("The lake has no row about this person.")
    console.print(f"Staged folders of runs {verb}: {len(removal.folders)}. Results in data docs: {removal.pages}.")
    if removal.rules:
        console.print(f"Rules that name the person, and are never erased: {', '.join(removal.rules)}.", soft_wrap=True)
    for name, rows in removal.other_fields.items():
        field = name.partition(".")[2]
        console.print(
            f"{counted(rows, 'event')} of others {'has' if rows == 1 else 'have'} the same value in {name}. If it is "
            f"the same person there, repeat with --key {field}=...",
            soft_wrap=True,
        )
    _show_remains(console, remains)
    if not erased:
        console.print("Nothing was changed. Repeat the command with --yes to erase; that cannot be undone.")


def _show_remains(console: "SafeConsole", remains: "Remains") -> None:
    from nightjar.terminal.tables import RecordTable, number

    if remains.topics is None:
        console.print(f"Kafka was not asked what remains there: {remains.unknown}", soft_wrap=True)
    else:
        table = RecordTable("remains in topic", "until", number("records not archived yet"))
        for each in remains.topics:
            until = "deleted never" if each.until is None else f"{each.until:%Y-%m-%d %H:%M} UTC"
            table.add_row(each.topic, until, f"{each.unarchived:,}")
        console.print(table)
        if any(each.unarchived for each in remains.topics):
            console.print("The next archive brings these records to the lake: repeat the command after it.")
    for name, gone in remains.state_until.items():
        console.print(
            f"The job keeps the person's events of {name} until its clock has passed {gone:%Y-%m-%d %H:%M} UTC. To "
            "remove them at once, stop it and run `nightjar stream rebuild`.",
            soft_wrap=True,
        )
