"""The addresses of the pages: one FastAPI application, for Airflow and for `nightjar pages`.

Pages are HTML that the server writes, from templates that escape every value; nothing is computed in the browser. A
browser gets no page without what `guard` lets through, loads nothing from elsewhere, and runs no script but ours.
Links are relative, so that the pages work below any path.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
import mimetypes
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from importlib import resources
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import polars as pl
from fastapi import FastAPI, HTTPException, Query, Request, Response, status
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, StreamingResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import BaseModel

from nightjar.backfill.config import BackfillError
from nightjar.contracts.alerts import RETRACTED
from nightjar.contracts.reconciliation import Cause, Outcome
from nightjar.expectations.pages import asset
from nightjar.lake.config import LakeError
from nightjar.pages import drawing
from nightjar.pages.lake_reader import DAYS_SHOWN, MOST_DOWNLOADED, ROWS_SHOWN, Filter, LakeReader
from nightjar.pages.live import LiveAlerts
from nightjar.rules.display import changed_lines, readable, yaml_text
from nightjar.rules.errors import NightjarError, SettingsError
from nightjar.rules.names import rule_meant
from nightjar.rules.states import Severity

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'self'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_OWN_ASSETS = ("application.css", "application.js")
# Events of a window that its table has, days of the heat map and of sparklines.
_EVENTS_SHOWN, _NIGHTS_SHOWN, _SPARK_DAYS = 200, 60, 28
# How often a live page looks for alerts, and how long it says nothing at the most, so that both sides notice a lost
# connection; seconds.
_LOOKS, _SILENCE = 0.25, 5.0
# Characters at the beginning of a cell that make spreadsheets take it for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_DOWNLOADED = (
    "event_time", "severity", "rule_id", "rule_version", "group", "text", "measures", "kind", "revision", "source",
    "cause", "muted", "overflow", "event_id", "alert_id",
)  # fmt: skip


class Asked(BaseModel):
    """The filter of the alerts page, as the form sends it: an empty value is none."""

    first: str = ""
    last: str = ""
    rule: str = ""
    severity: str = ""
    state: str = ""
    muted: str = ""
    overflow: str = ""
    cause: str = ""
    group: str = ""
    text: str = ""
    page: int = 1

    def filter(self, newest: date) -> Filter:
        """What it asks for. newest: the day that is shown last where no day is asked for.

        Raises:
            SettingsError: a day is not a valid date.
        """
        last = _day(self.last, newest)
        first = _day(self.first, last - timedelta(days=DAYS_SHOWN - 1))
        chosen = self.model_dump(exclude={"first", "last", "page"})
        return Filter(first, last, **{name: value or None for name, value in chosen.items()})


def _day(text: str, otherwise: date) -> date:
    try:
        return date.fromisoformat(text) if text else otherwise
    except ValueError:
        raise SettingsError("is not a valid date", where=repr(text[:40]), remedy="Write it like 2026-11-20") from None


def application(
    reader: Callable[[], LakeReader],
    live: Callable[[], LiveAlerts],
    guard: Any,
    *,
    links: Mapping[str, str],
    login: Callable[[Request], str] | None = None,
) -> FastAPI:
    """The application.

    reader, live: made when a page first needs them. guard: a dependency (fastapi.Depends) of every page with data,
    which raises HTTPException for who may not see it. links: addresses outside of it, by their texts. login: where who
    is not logged in logs in, to come back to the page of the request.
    """
    app = FastAPI(title="nightjar", docs_url=None, redoc_url=None, openapi_url=None)
    environment = _environment()

    def page(request: Request, name: str, code: int = status.HTTP_200_OK, **values: Any) -> HTMLResponse:
        shown = environment.get_template(name).render(
            up=_up(request), links=links, here=name.removesuffix(".html"), **values
        )
        return HTMLResponse(shown, code, headers=_HEADERS)

    def message(request: Request, code: int, title: str, line: str, link: str | None = None) -> HTMLResponse:
        return page(request, "message.html", code, title=title, line=line, link=link)

    @app.exception_handler(NightjarError)
    def wrong(request: Request, problem: NightjarError) -> HTMLResponse:
        unknown = isinstance(problem, BackfillError | LakeError)
        code = status.HTTP_404_NOT_FOUND if unknown else status.HTTP_400_BAD_REQUEST
        return message(request, code, "This cannot be shown", str(problem))

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
        return Response(found, media_type=kind, headers=_HEADERS | {"Cache-Control": "no-cache"})

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
        outcomes = lake.outcomes(row["alert_id"] for row in rows)
        unit, bars = drawing.by_time(found.found, wanted.first, wanted.last, 80.0)
        chosen = {**asked.model_dump(), "first": f"{wanted.first}", "last": f"{wanted.last}"}
        return page(
            request,
            "alerts.html",
            rows=[_row(row, outcomes.get(row["alert_id"])) for row in rows],
            total=total,
            number=number,
            pages=pages,
            chosen=chosen,
            rules=found.rules,
            causes=found.causes,
            severities=[each.value for each in Severity],
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
        return Response(_csv(found), media_type="text/csv; charset=utf-8", headers=_HEADERS | given)

    @app.get("/live", dependencies=[guard])
    def follow(request: Request, rule: str = "", severity: str = "") -> StreamingResponse:
        """Server-sent events: each is the HTML of a row of the alerts page, as the page itself would have it."""
        row = environment.get_template("row.html")

        def shown(record: Mapping[str, Any]) -> str:
            return row.render(alert=_row(record, None), up="./", new=True)

        def wanted(record: Mapping[str, Any]) -> bool:
            return rule in ("", record["rule_id"]) and severity in ("", record["severity"])

        last = request.headers.get("Last-Event-ID", "")
        events = _events(live(), last, wanted, shown)
        return StreamingResponse(events, media_type="text/event-stream", headers=_HEADERS | {"X-Accel-Buffering": "no"})

    @app.get("/alerts/{alert_id}", dependencies=[guard])
    def alert(request: Request, alert_id: str) -> HTMLResponse:
        lake = reader()
        found = lake.explanation(alert_id)
        fields = [*found.stream.fields, "arrival_time"]
        events, kinds = found.found.window.select(fields).tail(_EVENTS_SHOWN), drawing.kinds_of(found)
        shown = found.found.shown
        return page(
            request,
            "alert.html",
            alert_id=alert_id,
            found=found,
            group=json.loads(found.group),
            gauges=drawing.gauges_of(found),
            windows=drawing.windows_of(found),
            fields=fields,
            events=[*zip(kinds[-_EVENTS_SHOWN:], events.iter_rows(), strict=True)],
            left_out=len(kinds) - events.height,
            revisions=_with_changes(found.revisions.drop("original").to_dicts()),
            outcomes=found.outcomes.to_dicts(),
            rule_text=yaml_text(found.version.rule),
            applying=None if shown is found.version else yaml_text(shown.rule),
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
        rows = [_row(row, None) for row in corrections.head(_EVENTS_SHOWN).to_dicts()]
        return page(request, "night.html", night=found, corrections=rows, every=corrections.height)

    @app.get("/rules", dependencies=[guard])
    def rules(request: Request) -> HTMLResponse:
        lake = reader()
        counts = lake.alerts_a_day()
        newest = lake.newest_day()
        lines = {rule_id: drawing.sparkline(days, newest, _SPARK_DAYS) for rule_id, days in counts.items() if newest}
        since = None if newest is None else newest - timedelta(days=_SPARK_DAYS - 1)
        totals = {
            rule_id: sum(count for day, count in days if since is not None and day >= since)
            for rule_id, days in counts.items()
        }
        book = lake.book()
        severities = {rule_id: book.of_rule(rule_id)[-1].rule.severity.value for rule_id in book.rule_ids}
        return page(
            request,
            "rules.html",
            rules=lake.rules(),
            severities=severities,
            lines=lines,
            totals=totals,
            days=_SPARK_DAYS,
            newest=newest,
        )

    @app.get("/rules/{rule_id}", dependencies=[guard])
    def rule(request: Request, rule_id: str) -> HTMLResponse:
        lake = reader()
        versions = lake.book().of_rule(rule_id)
        if not versions:
            remedy = rule_meant(rule_id, [*lake.book().rule_ids])
            raise HTTPException(status.HTTP_404_NOT_FOUND, f"Rule {rule_id} was never published. {remedy}.")
        rows = [row for row in lake.rules(every=True) if row["rule_id"] == rule_id]
        befores = [None, *versions]
        shown = [
            (
                row,
                yaml_text(version.rule, provenance=False),
                changed_lines(before, version.rule, f"version {version.version}"),
            )
            for row, version, before in zip(rows, versions, befores, strict=False)
        ]
        return page(request, "rule.html", rule_id=rule_id, versions=shown[::-1])

    return app


def _up(request: Request) -> str:
    """The way from the request's page to the application's first address."""
    route, path = request.scope.get("route"), request.url.path.removeprefix(request.scope.get("root_path", ""))
    return "../" * (getattr(route, "path", path).count("/") - 1) or "./"


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("nightjar.pages", "site"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        readable=readable, segment=lambda text: quote(text, safe=""), instant=_instant, plain=_plain, words=_words
    )
    environment.globals.update(retracted=RETRACTED, matched=Outcome.MATCHED.value)
    return environment


def _instant(at: datetime | str) -> str:
    """A time in ISO 8601, in UTC, to the millisecond."""
    when = datetime.fromisoformat(at) if isinstance(at, str) else at
    return when.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(value: Any) -> str:
    """A value of a field."""
    return _instant(value) if isinstance(value, datetime) else "" if value is None else str(value)


def _words(name: str) -> str:
    """The name of a cause or outcome as words."""
    return name.replace("_", " ")


def _row(alert: Mapping[str, Any], judged: tuple[str, str | None] | None) -> dict[str, Any]:
    """An alert as the template of a row takes it. judged: outcome and cause that a night found."""
    group, at = alert["group"], alert["event_time"]
    values = json.loads(group) if isinstance(group, str) else group
    return {
        "alert_id": alert["alert_id"],
        "revision": alert["revision"],
        "retracted": alert["kind"] == RETRACTED,
        "rule_id": alert["rule_id"],
        "rule_version": alert["rule_version"],
        "state": alert["rule_state"],
        "severity": alert["severity"],
        "group": " ".join(str(value) for value in values.values()),
        "event_time": datetime.fromisoformat(at) if isinstance(at, str) else at,
        "text": alert["text"],
        "muted": bool(alert["muted"]),
        "overflow": bool(alert.get("overflow")),
        "source": alert.get("source"),
        "cause": alert.get("cause"),
        "outcome": None if judged is None else judged[0],
    }


def _with_changes(revisions: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The revisions, each with what of its content changed against the one before: name, then before and after."""
    found: list[dict[str, Any]] = []
    before: dict[str, Any] = {}
    for revision in revisions:
        content = {
            "state": revision["rule_state"],
            "severity": revision["severity"],
            "muted": revision["muted"],
            "text": revision["text"],
            **json.loads(revision["measures"]),
        }
        changes = [
            (name, before[name], value) for name, value in content.items() if name in before and before[name] != value
        ]
        found.append({**revision, "changes": changes})
        before = content
    return found


def _csv(alerts: pl.DataFrame) -> bytes:
    """The alerts as CSV with a header, which spreadsheets open without running anything."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(_DOWNLOADED)
    for row in alerts.select(_DOWNLOADED).iter_rows():
        cells = (_plain(value) for value in row)
        writer.writerow(f"'{cell}" if cell.startswith(_FORMULA) else cell for cell in cells)
    return text.getvalue().encode()


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
