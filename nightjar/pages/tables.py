"""The pages of tables: what is on each list, since when, by whom and why; and the forms that change it.

What it does not do: check or decide. Orders, imports and decisions pass through the functions of `nightjar table`
(operations/tables.py), and the user of the request is the author of all that is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import FastAPI, HTTPException, Query, Request, Response, status
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import BaseModel

from nightjar.contracts.table_changes import MAX_TEXT
from nightjar.files.table_files import FileRow, Key, keys_of, rows_of_text, table_kind, values_of_texts
from nightjar.operations.table_keys import newest_keys, standings
from nightjar.operations.tables import (
    Order,
    TableHistory,
    import_orders,
    now,
    refuse_beyond_bounds,
    shown_keys,
    shown_values_of,
)
from nightjar.pages.acting import Acting, acted, reason_of
from nightjar.pages.lake_reader import ROWS_SHOWN, LakeReader
from nightjar.pages.rendering import Rendering, see_other
from nightjar.pages.table_reader import TableReader
from nightjar.rules.engine.table_rows import Change
from nightjar.rules.errors import SettingsError
from nightjar.rules.masking import MASK
from nightjar.rules.table_values import shown_value, shown_values
from nightjar.rules.tables import TableType, values_of
from nightjar.rules.timestamps import from_microseconds, parse_timestamp
from nightjar.rules.types import FieldType, Kind

# Changes and refused lines that a page has.
_CHANGES_SHOWN, _REFUSED_SHOWN = 20, 100
# Bytes of a form with rows, as browsers encode it: some hundred thousand keys.
_MOST_ROWS = 4 << 20
_TOO_LONG = "The list is too long for a page: `nightjar table import` takes it."
# What the names of a form's values begin with.
_VALUE = "value-"
_ACTIONS = {"set": True, "remove": False}


class AskedKey(BaseModel):
    """What a table's page shows: a key, or a page of its keys. sent: the id of a change that a form has sent."""

    key: str = ""
    page: int = 1
    sent: str = ""


@dataclass(frozen=True)
class Import:
    """What a form would import. refused: lines that cannot be, each with its number and why; the others are counts.

    fresh: keys that the table does not have; again: keys that are set again, from a time that the rows state or with
    other values; there: those that the table has; ends: keys with an end; gone: keys that are removed; seen: the
    table's last change then.
    """

    orders: list[Order]
    refused: list[tuple[int, str]]
    examples: str
    fresh: int
    again: int
    there: int
    ends: int
    gone: int
    seen: str

    @property
    def is_possible(self) -> bool:
        """Whether something is to be sent."""
        return not self.refused and any(order.keys for order in self.orders)


def add_tables(
    app: FastAPI,
    rendering: Rendering,
    reader: Callable[[], LakeReader],
    tables: Callable[[], TableReader],
    *,
    guard: Any,
    actor: Any,
) -> None:
    """Add the pages, and the addresses that take their forms."""

    def kind_of(table: str) -> FieldType:
        try:
            return table_kind(table, tables().declared)
        except SettingsError as unknown:
            raise HTTPException(status.HTTP_404_NOT_FOUND, str(unknown)) from None

    @app.get("/tables", dependencies=[guard])
    def overview(request: Request) -> HTMLResponse:
        declared = tables().declared
        if not declared:
            return rendering.page(request, "tables.html", rows=[], known=None)
        with tables().history() as known:
            rows = [_summary(known, name, kind) for name, kind in declared.items()]
        return rendering.page(request, "tables.html", rows=rows, known=known)

    @app.get("/tables/{table}", dependencies=[guard])
    def page(
        request: Request, table: str, wanted: Annotated[AskedKey, Query()], acting: Acting = actor
    ) -> HTMLResponse:
        key = wanted.key.strip()
        kind, hidden = kind_of(table), table in reader().hidden_tables()
        if key and hidden:
            remedy = f"`nightjar table history {table}` shows them"
            raise SettingsError("Its keys are values of a sensitive field", where=table, remedy=remedy)
        asked: list[Key] = keys_of([key], table, kind) if key else []
        at = now()
        with tables().history(fresh=bool(wanted.sent)) as known:
            every = newest_keys(known, table, kind, at)
            pages = max(1, -(-len(every) // ROWS_SHOWN))
            number = min(max(1, wanted.page), pages)
            some = every[(number - 1) * ROWS_SHOWN : number * ROWS_SHOWN]
            rows, found = standings(known, table, kind, some, at), standings(known, table, kind, asked, at)
            summary = _summary(known, table, kind)
            values = known.values(table, at) if values_of(kind) and not hidden else {}
        waiting = [each for each in known.waiting if each.table == table]
        in_turn = known.of(table, asked[0] if asked else None)
        changes = (in_turn if asked else in_turn[: len(in_turn) - len(waiting)])[::-1]
        return rendering.page(
            request,
            "table.html",
            table=table,
            kind=kind,
            hidden=hidden,
            summary=summary,
            value_kinds={name: str(of) for name, of in values_of(kind).items()},
            values={each: shown_values(of) for each, of in values.items()},
            key=asked[0] if asked else None,
            present={n: shown_value(v) for n, v in values.get(str(asked[0]), {}).items()} if asked else {},
            standing=found[0] if found else None,
            rows=rows,
            number=number,
            pages=pages,
            changes=[_shown(each, known, hidden=hidden) for each in changes[:_CHANGES_SHOWN]],
            every=len(changes),
            waiting=[_shown(each, known, hidden=hidden) for each in waiting],
            became=_became(known, table, wanted.sent),
            acting=acting,
            mask=MASK,
            at=from_microseconds,
        )

    def done(table: str, ids: Sequence[str] = (), **more: str) -> RedirectResponse:
        query = urlencode({**more, **({"sent": ids[0]} if ids else {})})
        there = f"../{table}{'?' if query else ''}{query}"
        return see_other(there)

    @app.post("/tables/{table}/change", dependencies=[guard])
    async def change(request: Request, table: str, acting: Acting = actor) -> Response:
        who, form = await acted(request, acting, _MOST_ROWS, _TOO_LONG)
        kind = kind_of(table)
        keys = keys_of(filter(None, map(str.strip, form.get("keys", "").splitlines())), table, kind)
        orders = _orders(table, keys, who, form, kind)
        ids = await run_in_threadpool(lambda: tables().change(table, orders))
        hidden = await run_in_threadpool(lambda: table in reader().hidden_tables())
        return done(table, ids, **({"key": str(keys[0])} if len(keys) == 1 and not hidden else {}))

    @app.post("/tables/{table}/import", dependencies=[guard])
    async def import_rows(request: Request, table: str, acting: Acting = actor) -> Response:
        who, form = await acted(request, acting, _MOST_ROWS, _TOO_LONG)
        kind = kind_of(table)

        def answer() -> Response:
            with tables().history(fresh=True) as known:
                meant = _import(known, table, kind, who, form)
            if form.get("seen") == meant.seen and meant.is_possible:
                return done(table, tables().change(table, meant.orders))
            return rendering.page(
                request,
                "table_import.html",
                table=table,
                kind=kind,
                meant=meant,
                form=form,
                overtaken="seen" in form,
                refused=meant.refused[:_REFUSED_SHOWN],
                acting=acting,
            )

        return await run_in_threadpool(answer)

    @app.post("/tables/{table}/approve", dependencies=[guard])
    async def approve(request: Request, table: str, acting: Acting = actor) -> Response:
        who, form = await acted(request, acting)
        kind_of(table)
        name = form.get("id", "")
        await run_in_threadpool(lambda: tables().decide(table, [name], who, approves=True))
        return done(table, [name])

    @app.post("/tables/{table}/decline", dependencies=[guard])
    async def decline(request: Request, table: str, acting: Acting = actor) -> Response:
        who, form = await acted(request, acting)
        kind_of(table)
        name, reason = form.get("id", ""), reason_of(form, MAX_TEXT)
        await run_in_threadpool(lambda: tables().decide(table, [name], who, approves=False, reason=reason))
        return done(table, [name])

    @app.get("/tables/{table}/{form}", dependencies=[guard])
    def back(table: str, form: str) -> RedirectResponse:
        """Where a login leads whose session had ended before a form was sent."""
        if form not in ("change", "import", "approve", "decline"):
            raise HTTPException(status.HTTP_404_NOT_FOUND, "Nothing is here.")
        kind_of(table)
        return done(table)


def _summary(known: TableHistory, table: str, kind: FieldType) -> dict[str, Any]:
    """What the overview says of a table."""
    last = known.last(table)
    return {
        "name": table,
        "kind": str(kind),
        "keys": len(known.keys(table)),
        "changes": sum(each.table == table for each in known.changes),
        "last": last,
        "last_at": None if last is None else from_microseconds(last.arrival),
        "waiting": sum(each.table == table for each in known.waiting),
        "approved_from": from_microseconds(since)
        if isinstance(kind, TableType) and (since := kind.approved_from) is not None
        else None,
    }


def _shown(change: Change, known: TableHistory, *, hidden: bool) -> dict[str, Any]:
    """A change as people read it."""
    waits, values = change in known.waiting, shown_values_of(change)
    decline = known.decline_of(change)
    # Without a time of its own, what waits is valid from its approval (S22.8).
    is_undated = (waits or decline is not None) and change.valid_from == change.arrival
    return {
        "id": change.id,
        "arrival": from_microseconds(change.arrival),
        "valid_from": None if is_undated else from_microseconds(change.valid_from),
        "action": "set" if change.is_set else "remove",
        "keys": MASK if hidden else shown_keys(change.keys) + (f" ({values})" if values else ""),
        "author": change.author,
        "reason": change.reason,
        "approver": change.approver,
        "waits": waits,
        "decline": decline,
    }


def _became(known: TableHistory, table: str, sent: str) -> str:
    """What became of a change that a form has sent, by its id: done, declined, waits, or nothing; empty without one."""
    if not sent:
        return ""
    if any(each.id == sent and each.table == table for each in known.changes):
        return "done"
    if any(each.change.id == sent and each.change.table == table for each in known.declined):
        return "declined"
    return "waits" if any(each.id == sent and each.table == table for each in known.waiting) else "nothing"


def _orders(table: str, keys: list[Key], who: str, form: dict[str, str], kind: FieldType) -> list[Order]:
    """What the form for some keys asks for. kind: the table's.

    Raises:
        SettingsError: it asks for nothing that can be.
    """
    is_set, until = _ACTIONS.get(form.get("change", "")), form.get("until", "")
    if is_set is None or not keys:
        raise SettingsError("is missing", where="key" if is_set is not None else "change", remedy="Fill in the form")
    values = _values(table, form, kind) if is_set else {}
    order = Order(keys, is_set=is_set, valid_from=None, author=who, reason=reason_of(form, MAX_TEXT)).with_values(
        values
    )
    if not until:
        return [order]
    ends = parse_timestamp(until, zone_required=False)
    if ends is None:
        raise SettingsError("is not a point in time", where="until", remedy="Write 2026-01-05T12:00, in UTC")
    if not is_set:
        raise SettingsError("is only for keys that are set", where="until", remedy="Leave it empty to remove keys")
    if ends <= now():
        raise SettingsError("has passed", where="until", remedy="Give a later time, or remove the keys")
    return [order, replace(order, is_set=False, valid_from=from_microseconds(ends), values=())]


def _values(table: str, form: dict[str, str], kind: FieldType) -> dict[str, Any]:
    """The values that a form gives to its keys; an empty one is NULL, as all are that a row is not set with."""
    names = values_of(kind)
    if any(_VALUE + name not in form for name in names):
        remedy = "Load the page again, and fill in what the rows shall have"
        raise SettingsError("has no values: the rows of this table have some", where="the form", remedy=remedy)
    written = {name: form[_VALUE + name] for name in names}
    texts = (f"{name}={text if names[name].kind is Kind.STRING else text.strip()}" for name, text in written.items())
    return values_of_texts(texts, table, kind)


def _import(known: TableHistory, table: str, kind: FieldType, who: str, form: dict[str, str]) -> Import:
    """What the form for an import would do now.

    Raises:
        SettingsError: it has no reason, no header, or is more than the tables can have.
    """
    order = Order([], is_set=True, valid_from=None, author=who, reason=reason_of(form, MAX_TEXT))
    rows, refused = list[FileRow](), list[tuple[int, str]]()
    for line, row in rows_of_text(form.get("rows", ""), table, kind, is_csv=form.get("format") == "csv"):
        if isinstance(row, SettingsError):
            is_placed = row.where.startswith("line ")
            refused.append((line, row.what if is_placed else f"{row.where} {row.what}. {row.remedy}"))
        elif row.author not in ("", who):
            refused.append((line, f"author {row.author!r:.40} is not you. Leave the author out"))
        else:
            rows.append(row)
    is_whole = "replace" in form and not refused
    orders = import_orders(rows, known, table, kind, order, replace=is_whole)
    refuse_beyond_bounds(known, orders)
    present = {*keys_of(known.keys(table), table, kind)}
    *imports, removals = orders
    wanted = {key: None for each in imports if each.is_set for key in each.keys}
    fresh = [key for key in wanted if key not in present]
    last = known.of(table)
    return Import(
        orders=orders,
        refused=refused,
        examples=shown_keys(fresh),
        fresh=len(fresh),
        again=len(wanted) - len(fresh),
        there=len({row.key for row in rows} & present - wanted.keys()),
        ends=sum(len(each.keys) for each in imports if not each.is_set),
        gone=len(removals.keys),
        seen=f"{len(last)}-{last[-1].position}" if last else "0",
    )
