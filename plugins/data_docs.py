"""Shows the data docs of the nights inside Airflow, behind its login: *Data docs* in the menu; and backtest reports.

Whoever may see the DAG `nightly_backfill` may see the data docs, which show rows of events, and whoever may see
`rule_backtest` its reports. Where there is nothing to show, a
page says why: who is not logged in gets a link to the login, which leads back.
"""

import mimetypes
from datetime import UTC
from pathlib import PurePosixPath
from urllib.parse import quote

from airflow.models import DagModel, DagRun
from airflow.plugins_manager import AirflowPlugin
from airflow.utils.session import create_session
from fastapi import FastAPI, HTTPException, Request, status
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from sqlalchemy import select

from nightjar.airflow.plugin_access import BASE, login_address, reader_of
from nightjar.airflow.submission import BACKTESTS, run_folder
from nightjar.configuration.settings import load_settings
from nightjar.expectations.pages import asset, message_page

_DAG = "nightly_backfill"
_BACKTEST_DAG = "rule_backtest"
_FIRST = "index.html"
_PREFIX = "/data-docs"
# Only Airflow may show the pages in a frame.
_HEADERS = {"X-Frame-Options": "SAMEORIGIN", "Cache-Control": "no-cache"}

# For a page whose style and plots are inside it.
_STATIC = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:"}

app = FastAPI(title="data docs", docs_url=None, redoc_url=None, openapi_url=None)


@app.exception_handler(HTTPException)
def refused(request: Request, problem: HTTPException) -> HTMLResponse:
    """A page in place of JSON."""
    if problem.status_code == status.HTTP_401_UNAUTHORIZED:
        return _message(
            "Log in to see this page",
            ["It shows rows of events."],
            problem,
            (login_address(request, _PREFIX), "Log in"),
        )
    title = "You may not see this page" if problem.status_code == status.HTTP_403_FORBIDDEN else "No such page"
    return _message(title, [str(problem.detail)], problem, (f"{BASE}{_PREFIX}/", "Data docs"))


@app.get("/pages.{kind}")
def public(kind: str) -> Response:
    """The style sheet and the script of the pages, which a page for somebody without a session needs too."""
    found = asset(f"pages.{kind}")
    if found is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, "Nothing is here.")
    return Response(found, media_type=mimetypes.guess_type(f"pages.{kind}")[0], headers=_HEADERS)


@app.get("/run/{folder}", dependencies=[reader_of(_DAG)])
def run(folder: str) -> Response:
    """Airflow's page of the run with this staging folder; that of a pending day has the day after it."""
    with create_session() as session:
        runs = session.scalars(select(DagRun.run_id).where(DagRun.dag_id == _DAG))
        found = next((each for each in runs if f"{folder}-".startswith(f"{run_folder(each)}-")), None)
    if found is None:
        raise HTTPException(
            status.HTTP_404_NOT_FOUND, "Airflow has no such run: it was started with nightjar backfill."
        )
    return RedirectResponse(f"{BASE}/dags/{_DAG}/runs/{quote(found, safe='')}")


@app.get("/backtests/{folder}", dependencies=[reader_of(_BACKTEST_DAG)])
def backtest(folder: str) -> Response:
    """The report of a run of the DAG `rule_backtest`."""
    file = load_settings().data_dir / BACKTESTS / folder / "report.html"
    if folder == ".." or not file.is_file():
        raise HTTPException(
            status.HTTP_404_NOT_FOUND, f"There is no report here: it is in {BACKTESTS} under data_dir of the worker."
        )
    return Response(file.read_bytes(), media_type="text/html", headers=_HEADERS | _STATIC)


@app.get("/{path:path}", dependencies=[reader_of(_DAG)])
def page(path: str) -> Response:
    """A file of the site, of a folder or of an object store."""
    if not path:
        return RedirectResponse(_FIRST)
    file = load_settings().lake / "data_docs" / "site"
    names = PurePosixPath(path)
    if names.is_absolute() or ".." in names.parts:
        raise HTTPException(status.HTTP_404_NOT_FOUND, "Nothing is here.")
    for name in names.parts:
        file /= name
    if not file.is_file():
        if path == _FIRST:
            return _message("No night has run yet", _expected())
        raise HTTPException(status.HTTP_404_NOT_FOUND, "Results are kept for the last 60 runs.")
    kind = mimetypes.guess_type(names.name)[0] or "application/octet-stream"
    return Response(file.read_bytes(), media_type=kind, headers=_HEADERS)


def _message(
    title: str, lines: list[str], problem: HTTPException | None = None, link: tuple[str, str] | None = None
) -> HTMLResponse:
    text = message_page(title, lines, up=f"{BASE}{_PREFIX}/", link=link)
    code = status.HTTP_200_OK if problem is None else problem.status_code
    return HTMLResponse(text, code, headers={**(problem.headers or {} if problem else {}), **_HEADERS})


def _expected() -> list[str]:
    """What will be on the pages, and when."""
    with create_session() as session:
        dag = session.get(DagModel, _DAG)
        due = None if dag is None or dag.is_paused else dag.next_dagrun_create_after
        paused = dag is None or dag.is_paused
    when = f"The next run of the DAG {_DAG} starts at {due.astimezone(UTC):%Y-%m-%d %H:%M} UTC." if due else ""
    if paused:
        when = f"The DAG {_DAG} is paused: switch it on, and it runs every night; or trigger a run of one day."
    what = (
        "Each night checks its events, offsets, violations and outcomes. Here will be a page for each of these checks: "
    )
    return [
        f"{what}which expectations hold, which do not, and examples of the rows that break them.",
        when or f"Trigger a run of the DAG {_DAG} to get the first.",
    ]


class DataDocs(AirflowPlugin):
    """Adds the pages, and the entry in the menu, which shows them in Airflow's frame."""

    name = "data_docs"
    fastapi_apps = [{"app": app, "url_prefix": _PREFIX, "name": "data docs"}]  # noqa: RUF012  Airflow's form
    external_views = [  # noqa: RUF012
        {
            "name": "Data docs",
            "href": f"{BASE}{_PREFIX}/",
            "destination": "nav",
            "category": "browse",
            "url_route": _PREFIX.removeprefix("/"),
        },
    ]
