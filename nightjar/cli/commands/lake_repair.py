"""`nightjar lake repair`: makes a day of a damaged table whole again."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from nightjar.cli.context import Context

if TYPE_CHECKING:
    from nightjar.backfill.upkeep.repair import Repair
    from nightjar.terminal.console import SafeConsole


def repair(
    day: Annotated[
        str | None, typer.Option(help="The day (UTC) that the gate rejected, like 2026-11-20.", show_default=False)
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(help="Only this table; repeatable. Default: all that have the day.", show_default=False),
    ] = None,
    version: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Restore the rows as they were in this version of the table. Default: what is missing or wrong, from "
            "the newest version that has it.",
            show_default=False,
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes/--dry-run", help="Repair. Otherwise only show what would be done.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
) -> None:
    """Repair a day that the gate rejects: remove duplicate rows, restore rows from an earlier version of the table.

    Checks the day as the gate does. Equal rows are kept once; missing, unreadable or wrong rows are taken from the
    newest version of the table that has them, and rows that came since are kept. A day is only written if it is whole
    then. The versions before stay readable until `nightjar lake maintain` deletes their files (lake_file_retention).
    The exit code is 1 if something is wrong that cannot be repaired. Fails if an archive or a backfill is running.
    """
    import time

    from nightjar.operations.backfill_requests import days_of
    from nightjar.operations.lake_upkeep import repair as repaired
    from nightjar.terminal.console import show_json

    context = Context()
    config = context.backfill()
    wanted = None if day is None else days_of(day, None)[0]
    with context.stages.stage("Repairing" if yes else "Checking", str(config.lake.root)):
        now = time.time_ns() // 1000
        found = list(repaired(context.settings, config, wanted, table or [], version, now=now, dry_run=not yes))
    if as_json:
        show_json([asdict(each) | {"repaired": yes and each.rows_after is not None} for each in found])
    else:
        _show(context.console, found, done=yes)
    if any(each.refused for each in found):
        raise typer.Exit(1)


def _show(console: "SafeConsole", found: "list[Repair]", *, done: bool) -> None:
    from nightjar.terminal.console import counted, line

    for each in found:
        if not each.rows and not each.problems:
            continue
        console.print(line((each.table, "bold"), f" version {each.version}: {_state(each)}"), soft_wrap=True)
        for problem in each.problems:
            console.print(line(f"    {problem}"), soft_wrap=True)
        if each.refused:
            console.print(line(("    cannot be repaired: ", "red"), each.refused), soft_wrap=True)
            console.print("    What no version has must come from a backup of the lake.", soft_wrap=True)
        elif each.rows_after is not None:
            console.print(line((f"    {_action(each, done=done)}", "green")), soft_wrap=True)
    days = sorted({str(each.day) for each in found if each.day is not None})
    if not any(each.rows_after is not None for each in found):
        if not any(each.rows or each.problems for each in found):
            console.print(f"The lake has no rows{f' of {days[0]}' if days else ''}.")
        elif not any(each.refused for each in found):
            console.print("Nothing is to be repaired.")
    elif done:
        again = f"`nightjar backfill --day {days[0]}`" if days else "`nightjar backfill --pending`"
        console.print(f"Run the night again: {again}, or clear the task evaluate in Airflow.", soft_wrap=True)
    else:
        number = counted(sum(each.rows_after is not None for each in found), "table")
        console.print(f"Nothing was changed. Repeat the command with --yes to repair {number}.")


def _state(each: "Repair") -> str:
    from nightjar.terminal.console import counted

    of_day = "" if each.day is None else f" of {each.day}"
    return f"{counted(each.rows, 'row')}{of_day}" + ("" if each.problems else ", whole")


def _action(each: "Repair", *, done: bool) -> str:
    from nightjar.terminal.console import counted

    now = f"{each.rows:,} rows become {each.rows_after:,}"
    if each.restored is None:
        now = f"duplicates go: {now}"
    else:
        now = f"{counted(each.taken, 'row')} from version {each.restored}: {now}"
    kept = f"version {each.version} stays readable"
    return f"{'repaired' if done else 'would be repaired'}: {now}; {kept}"
