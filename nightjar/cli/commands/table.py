"""`nightjar table`: looks at and changes the lists that rules ask."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nightjar.cli.context import Context

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from nightjar.files.table_files import Key
    from nightjar.operations.tables import Order, TableHistory
    from nightjar.rules.engine.table_rows import Change
    from nightjar.rules.types import FieldType
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
Values = Annotated[
    list[str] | None,
    typer.Option(
        "--value",
        help="A value of the rows, as in country=DE. May be given several times; what is not given is NULL.",
        show_default=False,
    ),
]
Ids = Annotated[list[str], typer.Argument(help="Of changes that wait, as `history` shows them.", show_default=False)]
Decider = Annotated[str | None, typer.Option(help="Who decides; the login name by default.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON array.")]


def register(main: typer.Typer) -> None:
    """Add the commands."""
    main.add_typer(app)


@app.command("list")
def list_tables(as_json: AsJson = False) -> None:
    """Show the declared tables: how many rows each has now, and its last change."""
    from nightjar.operations.tables import read_tables
    from nightjar.rules.streams import tables_of
    from nightjar.rules.tables import values_of
    from nightjar.terminal.console import show_json

    context = Context()
    known = read_tables(context.settings, context.streams)
    kinds = tables_of(context.streams)
    if as_json:
        names = ("last_change", "author", "reason")
        rows = []
        for name, kind in kinds.items():
            last = dict(zip(names, _last_change(known, name), strict=True))
            values = {"values": {each: str(of) for each, of in values_of(kind).items()}} if values_of(kind) else {}
            rows.append({"table": name, "key": str(kind), **values, "rows": len(known.keys(name)), **last})
        show_json(rows)
        return
    context.console.print(overview(known, kinds))


def overview(known: "TableHistory", kinds: "Mapping[str, FieldType]") -> "RecordTable":
    """The tables, with the type of each one's key, and of the values where some have these."""
    from nightjar.rules.tables import values_of
    from nightjar.terminal.console import counted
    from nightjar.terminal.tables import RecordTable, number, prose

    waiting = [f"{counted(len(known.waiting), 'change')} waiting for approval"] if known.waiting else []
    unusable = [f"{counted(known.skipped, 'record')} on the topic cannot be used"] if known.skipped else []
    left_out = [f"{counted(known.rows.left_out, 'change')} beyond the bounds do not count"] * bool(known.rows.left_out)
    described = {
        name: ", ".join(f"{of} {each}" for of, each in values_of(kind).items()) for name, kind in kinds.items()
    }
    with_values = any(described.values())
    shown = RecordTable(
        "table",
        "key",
        *([prose("values")] if with_values else []),
        number("rows"),
        "last change",
        "author",
        prose("reason"),
        caption="; ".join(waiting + unusable + left_out),
    )
    for name, kind in kinds.items():
        values = [described[name]] if with_values else []
        shown.add_row(name, str(kind), *values, f"{len(known.keys(name)):,}", *_last_change(known, name))
    return shown


def _last_change(known: "TableHistory", table: str) -> tuple[str, str, str]:
    """Arrival, author and reason of the last change that has taken effect."""
    last = known.last(table)
    if last is None:
        return "", "", ""
    return _row(last)[0], last.author, last.reason


@app.command()
def show(
    table: Name,
    at: Annotated[
        str | None, typer.Option(help="Event time, with its zone; without it: now.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the keys that a table has, one a line, and the values of their rows."""
    from nightjar.operations.tables import read_tables
    from nightjar.rules.tables import values_of
    from nightjar.rules.timestamps import microseconds
    from nightjar.terminal.console import line, show_json

    context = Context()
    fields = values_of(_kind(context, table))
    instant = _instant(at, "--at")
    known = read_tables(context.settings, context.streams)
    time = None if instant is None else microseconds(instant)
    if fields:
        rows = known.values(table, time)
        if as_json:
            show_json([{"key": key, **values} for key, values in rows.items()])
        else:
            context.console.print(rows_table(rows, [*fields]))
        return
    keys = known.keys(table, time)
    if as_json:
        show_json(keys)
        return
    for key in keys:
        context.console.print(line(key), soft_wrap=True)


def rows_table(rows: "Mapping[str, Mapping[str, Any]]", fields: "Sequence[str]") -> "RecordTable":
    """Rows with their values by the names of these fields."""
    from nightjar.rules.table_values import shown_value
    from nightjar.terminal.tables import RecordTable

    shown = RecordTable("key", *fields)
    for key, values in rows.items():
        shown.add_row(key, *(shown_value(values.get(name)) for name in fields))
    return shown


@app.command()
def history(
    table: Name,
    key: Annotated[str | None, typer.Argument(help="Only changes of this key.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """Show the changes of a table: when each arrived and is valid from, what it does, by whom and why.

    Those that wait for approval come last."""
    from nightjar.files.table_files import keys_of
    from nightjar.operations.tables import read_tables
    from nightjar.terminal.console import show_json

    context = Context()
    kind = _kind(context, table)
    wanted = None if key is None else keys_of([key], table, kind)[0]
    known = read_tables(context.settings, context.streams)
    changes, waiting = known.of(table, wanted), known.waiting
    declines = [known.decline_of(each) for each in changes]
    if as_json:
        names = ("arrival", "valid_from", "change", "keys", "author", "reason")
        approvals = (
            {"id": each.id, "waits": each in waiting, "approved_by": each.approver}
            | ({} if by is None else {"declined_by": by.author, "decline_reason": by.reason})
            for each, by in zip(changes, declines, strict=True)
        )
        rows = ((*_row(each)[:3], list(each.keys), each.author, each.reason) for each in changes)
        written = [dict(zip(names, row, strict=True)) | more for row, more in zip(rows, approvals, strict=True)]
        show_json(
            [
                row | ({"values": [*map(dict, each.values)]} if each.values else {})
                for row, each in zip(written, changes, strict=True)
            ]
        )
        return
    said = [f"declined by {by.author}: {by.reason}" if by else "" for by in declines]
    context.console.print(changes_table(changes, waiting, said))


def changes_table(
    changes: "Sequence[Change]", waiting: "Collection[Change]" = (), declines: "Sequence[str]" = ()
) -> "RecordTable":
    """Changes, the first one first; who has approved them, if that was needed. waiting: those that wait for it;
    declines: of each, who declined it and why, or nothing."""
    from nightjar.operations.tables import shown_values_of
    from nightjar.terminal.tables import RecordTable, prose

    declines = declines or [""] * len(changes)
    approvals = [prose("approval")] if waiting or any(declines) or any(each.approver for each in changes) else []
    values = [prose("values")] if any(each.values for each in changes) else []
    shown = RecordTable(
        "arrival", "valid from", "change", prose("keys"), *values, "author", prose("reason"), *approvals
    )
    for each, decline in zip(changes, declines, strict=True):
        approval = decline or (f"{each.id} waits" if each in waiting else each.approver)
        of_keys = [shown_values_of(each)] if values else []
        shown.add_row(*_row(each), *of_keys, each.author, each.reason, *([approval] if approvals else []))
    return shown


@app.command("set")
def set_rows(
    table: Name,
    keys: Keys,
    reason: Reason,
    value: Values = None,
    valid_from: ValidFrom = None,
    author: Author = None,
) -> None:
    """Set rows of a table: from then on the table has these keys, with these values and no others."""
    _change(table, keys, (_instant(valid_from, "--valid-from"), author, reason), is_set=True, values=value or [])


@app.command()
def remove(table: Name, keys: Keys, reason: Reason, valid_from: ValidFrom = None, author: Author = None) -> None:
    """Remove rows of a table: from then on the table does not have these keys."""
    _change(table, keys, (_instant(valid_from, "--valid-from"), author, reason), is_set=False)


@app.command()
def approve(
    table: Name,
    ids: Ids,
    reason: Annotated[str, typer.Option(help="Why: one line, kept on the topic.", show_default=False)] = "",
    author: Decider = None,
) -> None:
    """Approve changes that somebody else has made, of a table whose declaration asks for approvals."""
    _decide(table, ids, author, reason, approves=True)


@app.command()
def decline(table: Name, ids: Ids, reason: Reason, author: Decider = None) -> None:
    """Decline changes that wait for approval: they never take effect. Their own author may do that, too."""
    _decide(table, ids, author, reason, approves=False)


def _decide(table: str, ids: list[str], author: str | None, reason: str, *, approves: bool) -> None:
    from nightjar.operations.tables import decision_records, read_tables, send_changes
    from nightjar.terminal.console import counted, line

    context = Context()
    _kind(context, table)
    known = read_tables(context.settings, context.streams)
    records = decision_records(table, [*dict.fromkeys(ids)], known, approves=approves, author=author, reason=reason)
    send_changes(context.settings, records)
    done = "Approved" if approves else "Declined"
    context.console.print(line(f"{done} {counted(len(set(ids)), 'change')} of {table}."), soft_wrap=True)


@app.command("import")
def import_rows(
    table: Name,
    file: Annotated[
        Path,
        typer.Argument(
            help="Keys, one a line, # begins a comment; or .csv with the columns key, valid_from, valid_until, author, "
            "reason, of which only the first is needed, and the names of values.",
            show_default=False,
        ),
    ],
    reason: Reason,
    replace: Annotated[bool, typer.Option("--replace", help="Also remove the keys that the file lacks.")] = False,
    valid_from: ValidFrom = None,
    author: Author = None,
) -> None:
    """Set the rows of a table from a file; keys that it has already, with these values, are not set again.

    Times, authors and reasons of a .csv take the place of the options."""
    from nightjar.files.table_files import read_rows
    from nightjar.operations.tables import import_orders, read_tables

    context = Context()
    kind = _kind(context, table)
    rows = read_rows(file, table, kind)
    order = _order([], (_instant(valid_from, "--valid-from"), author, reason), is_set=True)
    known = read_tables(context.settings, context.streams)
    _send(context, table, import_orders(rows, known, table, kind, order, replace=replace))


# Of a change: from when on it is valid, who makes it and why.
_Said = tuple["datetime | None", str | None, str]


def _order(keys: "list[Key]", said: _Said, *, is_set: bool) -> "Order":
    from nightjar.operations.tables import Order

    return Order(keys, is_set, *said)


def _change(table: str, texts: list[str], said: _Said, *, is_set: bool, values: "Sequence[str]" = ()) -> None:
    from nightjar.files.table_files import keys_of, values_of_texts

    context = Context()
    kind = _kind(context, table)
    order = _order(keys_of(texts, table, kind), said, is_set=is_set)
    _send(context, table, [order.with_values(values_of_texts(values, table, kind))])


def _send(context: Context, table: str, orders: "list[Order]") -> None:
    from nightjar.operations.tables import change_table, now, read_tables, refuse_beyond_bounds
    from nightjar.rules.tables import TableType
    from nightjar.terminal.console import counted, line

    ids: list[str] = []
    if any(order.keys for order in orders):
        refuse_beyond_bounds(read_tables(context.settings, context.streams), orders)
        ids = change_table(context.settings, table, orders)
    kind = _kind(context, table)
    if ids and isinstance(kind, TableType) and kind.approved_from is not None and kind.approved_from <= now():
        text = f"Somebody else has to approve it: nightjar table approve {table} {' '.join(ids)}"
        context.console.print(line(text), soft_wrap=True)
        return
    for is_set, done in ((True, "Set"), (False, "Removed")):
        rows = sum(len(order.keys) for order in orders if order.is_set == is_set)
        if rows or (is_set and not any(order.keys for order in orders)):
            context.console.print(line(f"{done} {counted(rows, 'row')} of {table}."), soft_wrap=True)


def _kind(context: Context, table: str) -> "FieldType":
    """The type of the table's key."""
    from nightjar.files.table_files import table_kind
    from nightjar.rules.streams import tables_of

    return table_kind(table, tables_of(context.streams))


def _instant(text: str | None, option: str) -> "datetime | None":
    from nightjar.rules.errors import SettingsError
    from nightjar.rules.timestamps import from_microseconds, parse_timestamp

    if text is None:
        return None
    instant = parse_timestamp(text, zone_required=True)
    if instant is None:
        raise SettingsError(f"{text!r} is not a point in time", where=option, remedy="Write 2026-01-05T12:00:00Z")
    return from_microseconds(instant)


def _row(change: "Change") -> tuple[str, str, str, str]:
    """A change as people read it: when it arrived and is valid from, what it does, and with which keys."""
    from nightjar.operations.tables import shown_keys
    from nightjar.rules.timestamps import iso_text

    action = "set" if change.is_set else "remove"
    return iso_text(change.arrival), iso_text(change.valid_from), action, shown_keys(change.keys)
