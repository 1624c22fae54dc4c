"""The addresses of the pages: one FastAPI application, for Airflow and for `nightjar pages`.

Pages are HTML that the server writes; the browser computes nothing but what an editor completes, and gets no page
without what `guard` lets through.
"""

from __future__ import annotations

import asyncio
import json
import mimetypes
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from importlib import resources
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import FastAPI, HTTPException, Query, Request, Response, status
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, StreamingResponse
from pydantic import BaseModel

from nightjar.backfill.config import BackfillError
from nightjar.backfill.publish.precision import PRECISION_DAYS
from nightjar.contracts.label_values import Label
from nightjar.contracts.reconciliation import Cause
from nightjar.expectations.pages import asset
from nightjar.kafka.clients import KafkaError
from nightjar.lake.config import LakeError
from nightjar.pages import drawing
from nightjar.pages.acting import Acting
from nightjar.pages.backtests import Backtests, add_backtests
from nightjar.pages.editor import add_editor
from nightjar.pages.entities import add_entities
from nightjar.pages.labels import Send, add_labels
from nightjar.pages.lake_reader import DAYS_SHOWN, MOST_DOWNLOADED, NO_LABEL, ROWS_SHOWN, Filter, LakeReader, day_of
from nightjar.pages.live import LiveAlerts
from nightjar.pages.readiness import Readiness
from nightjar.pages.rendering import HEADERS, EventTime, Rendering
from nightjar.pages.rows import csv_of, row_of, with_changes
from nightjar.pages.rule_pages import add_rules
from nightjar.pages.rule_reader import RuleReader
from nightjar.pages.snoozes import BEGINS, LENGTHS, SnoozeReader, add_snoozes, of_night, shown
from nightjar.pages.stream_page import StreamReader, add_stream
from nightjar.pages.table_reader import TableReader
from nightjar.pages.tables import add_tables
from nightjar.rules.display import yaml_text
from nightjar.rules.errors import NightjarError, SettingsError
from nightjar.rules.masking import MASK
from nightjar.rules.states import Severity
from nightjar.rules.timestamps import from_microseconds

_OWN_ASSETS = ("application.css", "application.js", "editor.js")
# Events of a window that its table has, and days of the heat map.
_EVENTS_SHOWN, _NIGHTS_SHOWN = 200, 60
# How often a live page looks for alerts, and how long it says nothing at the most, so that both sides notice a lost
# connection; seconds.
_LOOKS, _SILENCE = 0.25, 5.0


class Asked(BaseModel):
    """The filter of the alerts page, as the form sends it: an empty value is none."""

    first: str = ""
    last: str = ""
    rule: str = ""
    severity: str = ""
    state: str = ""
    muted: str = ""
    overflow: str = ""
    snoozed: str = ""
    cause: str = ""
    label: str = ""
    group: str = ""
    text: str = ""
    page: int = 1

    def filter(self, newest: date) -> Filter:
        """What it asks for. newest: the day that is shown last where no day is asked for.

        Raises:
            SettingsError: a day is not a valid date.
        """
        last = day_of(self.last) or newest
        first = day_of(self.first) or last - timedelta(days=DAYS_SHOWN - 1)
        chosen = self.model_dump(exclude={"first", "last", "page"})
        return Filter(first, last, **{name: value or None for name, value in chosen.items()})


def application(
    reader: Callable[[], LakeReader],
    live: Callable[[], LiveAlerts],
    stream: Callable[[], StreamReader],
    tables: Callable[[], TableReader],
    rules: Callable[[], RuleReader],
    *,
    snoozes: Callable[[], SnoozeReader],
    backtests: Callable[[], Backtests],
    guard: Any,
    actor: Any,
    send: Send,
    links: Mapping[str, str],
    login: Callable[[Request], str] | None = None,
) -> FastAPI:
    """The application.

    reader, live, stream, tables, rules, snoozes, backtests: made when a page first needs them. guard: a dependency
    (fastapi.Depends) of every page with data, which raises HTTPException for who may not see it. actor: a dependency
    that returns the request's Acting. send: puts a label on its topic. links: addresses outside of it, by their texts.
    login: where who is not logged in logs in, to come back to the page of the request.

    Its `state.readiness` is its Readiness, which has yet to begin.
    """
    app = FastAPI(title="nightjar", docs_url=None, redoc_url=None, openapi_url=None)
    rendering = Rendering(links)
    readiness = app.state.readiness = Readiness(reader, stream, tables, rules, rendering)
    page, message = rendering.page, rendering.message
    add_labels(app, reader, guard, actor, send)
    add_snoozes(app, reader, snoozes, guard=guard, actor=actor)
    add_stream(app, rendering, stream, guard)
    add_entities(app, rendering, reader, tables, guard=guard, actor=actor)
    add_tables(app, rendering, reader, tables, guard=guard, actor=actor)
    add_rules(app, rendering, reader, rules, guard=guard, actor=actor)
    add_editor(app, rendering, reader, rules, backtests=backtests, guard=guard, actor=actor)
    add_backtests(app, rendering, backtests, guard=guard, actor=actor)

    @app.middleware("http")
    async def note(request: Request, following: Callable[[Request], Awaitable[Response]]) -> Response:
        with readiness.answering():
            return await following(request)

    @app.exception_handler(NightjarError)
    def wrong(request: Request, problem: NightjarError) -> HTMLResponse:
        if isinstance(problem, KafkaError):
            return message(request, status.HTTP_503_SERVICE_UNAVAILABLE, "Kafka cannot be reached", str(problem))
        unknown = isinstance(problem, BackfillError | LakeError)
        code = status.HTTP_404_NOT_FOUND if unknown else status.HTTP_400_BAD_REQUEST
        return message(request, code, "This does not work", str(problem))

    @app.exception_handler(HTTPException)
    def refused(request: Request, problem: HTTPException) -> HTMLResponse:
        titles = {401: "Log in to see this page", 403: "You may not see this page", 404: "No such page"}
        title, line = titles.get(problem.status_code, "It failed"), str(problem.detail)
        link = None
        if problem.status_code == status.HTTP_401_UNAUTHORIZED and login is not None:
            line, link = "It shows alerts and events.", login(request)
        found = message(request, problem.status_code, title, line, link)
        found.headers.update(problem.headers or {})
        return found

    @app.exception_handler(RequestValidationError)
    def malformed(request: Request, problem: RequestValidationError) -> HTMLResponse:
        names = ", ".join(str(each["loc"][-1]) for each in problem.errors())
        return message(
            request, status.HTTP_400_BAD_REQUEST, "This cannot be shown", f"The address is wrong in {names}."
        )

    @app.get("/assets/{name}")
    def assets(name: str) -> Response:
        """Style and scripts, which a page for somebody without a session needs, too."""
        site = resources.files("nightjar.pages") / "site"
        found = (site / name).read_bytes() if name in _OWN_ASSETS else asset(name)
        if found is None:
            raise HTTPException(status.HTTP_404_NOT_FOUND, "Nothing is here.")
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        return Response(found, media_type=kind, headers=HEADERS | {"Cache-Control": "no-cache"})

    @app.get("/", dependencies=[guard])
    def first() -> RedirectResponse:
        return RedirectResponse("alerts")

    @app.get("/alerts", dependencies=[guard])
    def alerts(request: Request, asked: Annotated[Asked, Query()]) -> HTMLResponse:
        lake = reader()
        newest = lake.newest_day() or datetime.now(UTC).date()
        wanted = asked.filter(newest)
        found = lake.alerts(wanted)
        total = found.found.height
        pages = max(1, -(-total // ROWS_SHOWN))
        number = min(max(1, asked.page), pages)
        rows = found.found.slice((number - 1) * ROWS_SHOWN, ROWS_SHOWN).to_dicts()
        outcomes = lake.outcomes(rows)
        unit, bars = drawing.by_time(found.found, wanted.first, wanted.last, 80.0)
        chosen = {**asked.model_dump(), "first": f"{wanted.first}", "last": f"{wanted.last}"}
        return page(
            request,
            "alerts.html",
            rows=[row_of(row, outcomes.get(row["alert_id"])) for row in rows],
            total=total,
            snoozed=found.found.get_column("snoozed_until").count(),
            number=number,
            pages=pages,
            chosen=chosen,
            rules=found.rules,
            causes=found.causes,
            severities=[each.value for each in Severity],
            labels=[NO_LABEL, *(each.value for each in Label)],
            unit=unit,
            bars=bars,
            address=lambda **changed: urlencode({k: v for k, v in {**chosen, **changed}.items() if v not in ("", 1)}),
            follows=number == 1 and wanted.last >= newest,
            place=lake.place,
        )

    @app.get("/alerts.csv", dependencies=[guard])
    def download(asked: Annotated[Asked, Query()]) -> Response:
        lake = reader()
        wanted = asked.filter(lake.newest_day() or datetime.now(UTC).date())
        found = lake.alerts(wanted).found
        if found.height > MOST_DOWNLOADED:
            raise SettingsError(
                f"{found.height:,} alerts are too many for one file",
                where="alerts.csv",
                remedy=f"Choose fewer days or one rule: {MOST_DOWNLOADED:,} fit",
            )
        name = f"alerts-{wanted.first}-to-{wanted.last}.csv"
        given = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(csv_of(found), media_type="text/csv; charset=utf-8", headers=HEADERS | given)

    @app.get("/live", dependencies=[guard])
    def follow(request: Request, rule: str = "", severity: str = "") -> StreamingResponse:
        """Server-sent events: each is the HTML of a row of the alerts page, as the page itself would have it."""
        row = rendering.environment.get_template("row.html")

        def shown(record: Mapping[str, Any]) -> str:
            return row.render(alert=row_of(record), up="./", new=True)

        def wanted(record: Mapping[str, Any]) -> bool:
            return rule in ("", record["rule_id"]) and severity in ("", record["severity"])

        last = request.headers.get("Last-Event-ID", "")
        events = _events(live(), last, wanted, shown)
        return StreamingResponse(events, media_type="text/event-stream", headers=HEADERS | {"X-Accel-Buffering": "no"})

    @app.get("/alerts/{alert_id}", dependencies=[guard])
    def alert(request: Request, alert_id: str, at: EventTime = None, acting: Acting = actor) -> HTMLResponse:
        """An alert. at: when its event happened, as links from where that is known have it: it is found sooner."""
        lake = reader()
        found, snoozes, until = lake.explanation(alert_id, None if at is None else from_microseconds(at))
        fields = [*found.stream.fields, "arrival_time"]
        events, kinds = found.found.window.select(fields).tail(_EVENTS_SHOWN), drawing.kinds_of(found)
        applying = found.found.shown
        return page(
            request,
            "alert.html",
            alert_id=alert_id,
            found=found,
            group=json.loads(found.group),
            mask=MASK,
            day=max(found.revisions.get_column("event_time").dt.date(), default=""),
            gauges=drawing.gauges_of(found),
            windows=drawing.windows_of(found),
            fields=fields,
            events=[*zip(kinds[-_EVENTS_SHOWN:], events.iter_rows(), strict=True)],
            left_out=len(kinds) - events.height,
            revisions=with_changes(found.revisions.drop("original").to_dicts()),
            outcomes=found.outcomes.to_dicts(),
            rule_text=yaml_text(found.version.rule),
            labels=lake.labels_of(alert_id, found.stream.name, found.event_id),
            snoozed_until=None if until is None else from_microseconds(until),
            snoozes=shown(snoozes),
            lengths=LENGTHS,
            begins=BEGINS,
            acting=acting,
            applying=None if applying is found.version else yaml_text(applying.rule),
        )

    @app.get("/nights", dependencies=[guard])
    def nights(request: Request) -> HTMLResponse:
        found = reader().nights()
        shown = found[:_NIGHTS_SHOWN]
        causes = [cause.value for cause in Cause if any(night.by_cause(cause.value) for night in shown)]
        most = {cause: max(night.by_cause(cause) for night in shown) for cause in causes}
        return page(request, "nights.html", nights=shown, causes=causes, most=most, every=len(found))

    @app.get("/nights/{day}", dependencies=[guard])
    def night(request: Request, day: date) -> HTMLResponse:
        lake = reader()
        found = next((each for each in lake.nights() if each.day == day), None)
        if found is None:
            raise HTTPException(status.HTTP_404_NOT_FOUND, f"No run has judged {day}.")
        corrections = lake.corrections(day)
        rows = [row_of(row) for row in corrections.head(_EVENTS_SHOWN).to_dicts()]
        snoozed = {run.run_id: of_night(lake, run) for run in found.runs}
        return page(
            request,
            "night.html",
            night=found,
            corrections=rows,
            every=corrections.height,
            labelled_days=PRECISION_DAYS,
            snoozed=snoozed,
        )

    return app


async def _events(
    live: LiveAlerts, last: str, wanted: Callable[[Mapping[str, Any]], bool], shown: Callable[[Mapping[str, Any]], str]
) -> AsyncIterator[str]:
    """Server-sent events: rows, and the state of the live alerts where it changes."""
    name, _, number = last.partition("-")
    position = int(number) + 1 if name == live.name and number.isdecimal() else live.position
    said, silent = "", 0.0
    yield "retry: 2000\n\n"
    while True:
        records = live.since(position)
        state = live.state
        if state != said or silent >= _SILENCE:
            said, silent = state, 0.0
            yield f"event: state\ndata: {state}\n\n"
        for each in records:
            position = each.number + 1
            if wanted(each.record):
                lines = "".join(f"data: {line}\n" for line in shown(each.record).splitlines())
                yield f"id: {live.name}-{each.number}\n{lines}\n"
        await asyncio.sleep(_LOOKS)
        silent += _LOOKS
