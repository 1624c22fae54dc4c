"""The page of a customer, a terminal, or whatever a field names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import HTMLResponse
from pydantic import BaseModel

from nightjar.pages.acting import Acting
from nightjar.pages.drawing import WIDTH, Axis
from nightjar.pages.entity_reader import ALERT, EVENT, LABEL, RESTRICTION, SNOOZE, Entity, Entry, entity
from nightjar.pages.lake_reader import LakeReader, day_of
from nightjar.pages.rendering import Rendering
from nightjar.pages.rows import group_text, row_of
from nightjar.pages.snoozes import BEGINS, LENGTHS
from nightjar.pages.table_reader import TableReader
from nightjar.rules.timestamps import microseconds

# Entries that the table has.
_LISTED = 300
# A restriction is at least so wide in the figure.
_NARROWEST = 4.0


class AskedEntity(BaseModel):
    """Whom the page is about, and the days, as its form sends them: an empty day is none."""

    field: str
    value: str
    first: str = ""
    last: str = ""


@dataclass
class Lane:
    """A line of the figure. marks: x and the entry; spans: x, width and the entry."""

    name: str
    marks: list[tuple[float, Entry]] = field(default_factory=list)
    spans: list[tuple[float, float, Entry]] = field(default_factory=list)


def add_entities(
    app: FastAPI,
    rendering: Rendering,
    reader: Callable[[], LakeReader],
    tables: Callable[[], TableReader],
    *,
    guard: Any,
    actor: Any,
) -> None:
    """Add the page."""

    @app.get("/entity", dependencies=[guard])
    def page(request: Request, asked: Annotated[AskedEntity, Query()], acting: Acting = actor) -> HTMLResponse:
        lake = reader()
        found = entity(lake, asked.field, asked.value, day_of(asked.first), day_of(asked.last))
        lists: dict[str, bool | None] = {}
        for name in found.streams:
            lists |= tables().lists_of(asked.field, lake.streams[name].fields[asked.field], asked.value)
        axis, lanes = lanes_of(found)
        return rendering.page(
            request,
            "entity.html",
            asked=asked,
            found=found,
            lanes=lanes,
            ticks=axis.ticks(),
            entries=found.entries[:_LISTED],
            counts={f"{kind}s": found.count(kind) for kind in (EVENT, ALERT, RESTRICTION, LABEL, SNOOZE)},
            row_of=row_of,
            groups=groups_of(found),
            lengths=LENGTHS,
            begins=BEGINS,
            acting=acting,
            lists={name: has for name, has in lists.items() if name not in lake.hidden_tables()},
        )


def groups_of(found: Entity) -> list[tuple[str, str]]:
    """The rules and groups of the alerts that are shown: the latest alert of each, and what a form calls them."""
    known: dict[tuple[str, str], str] = {}
    for entry in found.entries:
        if entry.kind == ALERT:
            known.setdefault((entry.values["rule_id"], entry.values["group"]), entry.values["alert_id"])
    return [(alert_id, f"{rule_id}: {group_text(group)}") for (rule_id, group), alert_id in sorted(known.items())]


def lanes_of(found: Entity) -> tuple[Axis, list[Lane]]:
    """The entries of the days on a time axis: a lane for each stream, for alerts, and for what else there is."""
    begin, end = (datetime.combine(day, time(), UTC) for day in (found.first, found.last + timedelta(days=1)))
    axis = Axis(microseconds(begin), microseconds(end))
    lanes = {name: Lane(name) for name in (*found.streams, ALERT)}
    for entry in found.entries:
        if not begin <= entry.at < end:  # a label that became known later
            continue
        lane, x = lanes.setdefault(entry.lane, Lane(entry.lane)), axis.x(microseconds(entry.at))
        if entry.until is None:
            lane.marks.append((x, entry))
        else:
            until = min(axis.x(microseconds(min(entry.until, end))), WIDTH)
            lane.spans.append((x, max(_NARROWEST, until - x), entry))
    return axis, [*lanes.values()]
