"""`nightjar table`: looks at and changes the lists that rules ask."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from nightjar.cli.context import Context

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from nightjar.operations.tables import Key, TableHistory
    from nightjar.rules.engine.table_rows import Change
    from nightjar.terminal.tables import RecordTable

app = typer.Typer(name="table", help="Show or change the lists that rules ask.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The table.", show_default=False)]
Keys = Annotated[list[str], typer.Argument(help="Keys of rows.", show_default=False)]
Reason = Annotated[str, typer.Option(help="Why: one line, kept in the history.", show_default=False)]
Author = Annotated[str | None, typer.Option(help="Who changes it; the login name by default.", show_default=False)]
ValidFrom = Annotated[
    str | None,
    typer.Option(
        help="Event time from which on the change is valid, with its zone, as in 2026-01-05T12:00:00Z. Without it: "
        "from when it arrives on Kafka.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON array.")]


def register(main: typer.Typer) -> None:
    """Add the commands."""
    main.add_typer(app)


@app.command("list")
def list_tables(as_json: AsJson = False) -> None:
    """Show the declared tables: how many rows each has now, and its last change."""
    from nightjar.operations.tables import read_tables
    from nightjar.rules.streams import tables_of
    from nightjar.terminal.console import show_json

    context = Context()
    known = read_tables(context.settings, context.streams)
    kinds = {name: str(kind) for name, kind in tables_of(context.streams).items()}
    if as_json:
        rows = ({"table": name, "key": kind, "rows": len(known.keys(name))} for name, kind in kinds.items())
        show_json([*rows])
        return
    context.console.print(overview(known, kinds))


def overview(known: "TableHistory", kinds: dict[str, str]) -> "RecordTable":
    """The tables, with the type of each one's key."""
    from nightjar.terminal.console import counted
    from nightjar.terminal.tables import RecordTable, number, prose

    unusable = [f"{counted(known.skipped, 'record')} on the topic cannot be used"] if known.skipped else []
    left_out = [f"{counted(known.rows.left_out, 'change')} beyond the bounds do not count"] * bool(known.rows.left_out)
    shown = RecordTable(
        "table", "key", number("rows"), "last change", "author", prose("reason"), caption="; ".join(unusable + left_out)
    )
    for name, kind in kinds.items():
        changes = known.of(name)
        last = _row(changes[-1]) if changes else ("", "", "", "", "", "")
        shown.add_row(name, kind, f"{len(known.keys(name)):,}", last[0], last[4], last[5])
    return shown


@app.command()
def show(
    table: Name,
    at: Annotated[
        str | None, typer.Option(help="Event time, with its zone; without it: now.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the keys that a table has, one a line."""
    from nightjar.operations.tables import read_tables, table_kind
    from nightjar.rules.timestamps import microseconds
    from nightjar.terminal.console import line, show_json

    context = Context()
    table_kind(table, context.streams)
    instant = _instant(at, "--at")
    known = read_tables(context.settings, context.streams)
    keys = known.keys(table, None if instant is None else microseconds(instant))
    if as_json:
        show_json(keys)
        return
    for key in keys:
        context.console.print(line(key), soft_wrap=True)


@app.command()
def history(
    table: Name,
    key: Annotated[str | None, typer.Argument(help="Only changes of this key.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """Show the changes of a table: when each arrived and is valid from, what it does, by whom and why."""
    from nightjar.operations.tables import keys_of, read_tables, table_kind
    from nightjar.terminal.console import show_json

    context = Context()
    kind = table_kind(table, context.streams)
    wanted = None if key is None else keys_of([key], table, kind)[0]
    changes = read_tables(context.settings, context.streams).of(table, wanted)
    if as_json:
        names = ("arrival", "valid_from", "change", "keys", "author", "reason")
        show_json(
            [dict(zip(names, (*_row(each)[:3], list(each.keys), *_row(each)[4:]), strict=True)) for each in changes]
        )
        return
    context.console.print(changes_table(changes))


def changes_table(changes: "Iterable[Change]") -> "RecordTable":
    """Changes, the first one first."""
    from nightjar.terminal.tables import RecordTable, prose

    shown = RecordTable("arrival", "valid from", "change", prose("keys"), "author", prose("reason"))
    for each in changes:
        shown.add_row(*_row(each))
    return shown


@app.command("set")
def set_rows(table: Name, keys: Keys, reason: Reason, valid_from: ValidFrom = None, author: Author = None) -> None:
    """Set rows of a table: from then on the table has these keys."""
    _change(table, keys, _How(_instant(valid_from, "--valid-from"), author, reason), is_set=True)


@app.command()
def remove(table: Name, keys: Keys, reason: Reason, valid_from: ValidFrom = None, author: Author = None) -> None:
    """Remove rows of a table: from then on the table does not have these keys."""
    _change(table, keys, _How(_instant(valid_from, "--valid-from"), author, reason), is_set=False)


@app.command("import")
def import_rows(
    table: Name,
    file: Annotated[Path, typer.Argument(help="Keys, one a line; # begins a comment.", show_default=False)],
    reason: Reason,
    replace: Annotated[bool, typer.Option("--replace", help="Also remove the keys that the file lacks.")] = False,
    valid_from: ValidFrom = None,
    author: Author = None,
) -> None:
    """Set the rows of a table from a file; keys that it has already are not set again."""
    from nightjar.operations.tables import keys_in, keys_of, read_tables, table_kind

    context = Context()
    kind = table_kind(table, context.streams)
    wanted = keys_of(keys_in(file), table, kind)
    present = keys_of(read_tables(context.settings, context.streams).keys(table), table, kind)
    fresh, held = set(wanted) - set(present), set(wanted)
    how = _How(_instant(valid_from, "--valid-from"), author, reason)
    _send(context, table, [key for key in wanted if key in fresh], how, is_set=True)
    if replace:
        _send(context, table, [key for key in present if key not in held], how, is_set=False)


class _How(NamedTuple):
    """What is said about a change. author: None: the login name."""

    valid_from: "datetime | None"
    author: str | None
    reason: str


def _change(table: str, texts: list[str], how: _How, *, is_set: bool) -> None:
    from nightjar.operations.tables import keys_of, table_kind

    context = Context()
    _send(context, table, keys_of(texts, table, table_kind(table, context.streams)), how, is_set=is_set)


def _send(context: Context, table: str, keys: "list[Key]", how: _How, *, is_set: bool) -> None:
    from nightjar.operations.tables import change_table, read_tables, refuse_beyond_bounds
    from nightjar.terminal.console import counted, line

    if keys:
        refuse_beyond_bounds(read_tables(context.settings, context.streams), keys)
        change_table(context.settings, table, keys, is_set=is_set, **how._asdict())
    done = "Set" if is_set else "Removed"
    context.console.print(line(f"{done} {counted(len(keys), 'row')} of {table}."), soft_wrap=True)


def _instant(text: str | None, option: str) -> "datetime | None":
    from nightjar.rules.errors import SettingsError
    from nightjar.rules.timestamps import from_microseconds, parse_timestamp

    if text is None:
        return None
    instant = parse_timestamp(text, zone_required=True)
    if instant is None:
        raise SettingsError(f"{text!r} is not a point in time", where=option, remedy="Write 2026-01-05T12:00:00Z")
    return from_microseconds(instant)


def _row(change: "Change") -> tuple[str, str, str, str, str, str]:
    """A change as people read it."""
    from nightjar.rules.timestamps import iso_text

    shown = ", ".join(map(str, change.keys[:10])) + (f" and {len(change.keys) - 10} more" * (len(change.keys) > 10))
    action = "set" if change.is_set else "remove"
    return iso_text(change.arrival), iso_text(change.valid_from), action, shown, change.author, change.reason
