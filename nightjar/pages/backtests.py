"""Backtests from the page that writes a rule: starts them, says how they stand, and shows what they found.

How it works: inside Airflow a backtest is a run of the DAG `rule_backtest`, started as the user of the request, which
asks nobody to approve. Elsewhere it is the command `nightjar backtest`, one at a time, in a process that is ended when
it takes too long or when the pages end. Either leaves figures and a report in a folder, which the page shows.

What it does not do: evaluate, or compute a curve. That is `backfill.backtest`.
"""

from __future__ import annotations

import atexit
import re
import secrets
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from fastapi import FastAPI, HTTPException, Request, Response, status
from fastapi.responses import HTMLResponse

from nightjar.airflow.submission import BACKTESTS, PUBLISH, run_folder
from nightjar.operations.backtest_run import DRAFTS, REPORT, figures_of, first_threshold, run_backtest
from nightjar.pages.acting import Acting
from nightjar.pages.drawing import threshold_figure
from nightjar.pages.lake_reader import day_of
from nightjar.pages.rendering import HEADERS, Rendering
from nightjar.rules.errors import NightjarError, SettingsError, printable
from nightjar.rules.model import Rule
from nightjar.rules.streams import Stream
from nightjar.rules.thresholds import threshold_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nightjar.airflow.dag_runs import DagRuns
    from nightjar.configuration.settings import Settings

# Days that one backtest of the pages takes, and seconds that its process may.
MOST_DAYS, _MOST_SECONDS = 92, 3600.0
# For a page whose style and plots are inside it.
_STATIC = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:"}
_RUN = re.compile(r"[0-9]{8}T[0-9]{6}-[0-9a-f]{6}")
_TASK = "backtest"


class State(StrEnum):
    """How a backtest stands."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class AskedBacktest:
    """What is to be tried. text: rules as YAML; rules: those in it; first, last: days (UTC); threshold: see `nightjar
    backtest`."""

    text: str
    rules: Sequence[Rule]
    first: date
    last: date
    threshold: str | None
    reason: str


@dataclass(frozen=True)
class Standing:
    """How a backtest stands. said: in words, beside the state; folder: where its figures will be."""

    state: State
    said: str
    folder: Path


class Backtests(Protocol):
    """Runs backtests. Each method may raise HTTPException for who may not, and NightjarError."""

    async def start(self, request: Request, asked: AskedBacktest) -> str:
        """Start one; its name."""

    async def standing(self, request: Request, run: str) -> Standing:
        """How it stands."""


class LocalBacktests:
    """Runs the command, one at a time."""

    def __init__(self, settings: Settings) -> None:
        self._folder, self._lake = settings.data_dir.resolve() / BACKTESTS, settings.lake
        self._lock = threading.Lock()
        self._known: dict[str, tuple[State, str]] = {}

    async def start(self, _: Request, asked: AskedBacktest) -> str:
        """Start one; its name.

        Raises:
            SettingsError: one is running.
        """
        with self._lock:
            if any(state is State.RUNNING for state, _ in self._known.values()):
                raise SettingsError("is running already", where="a backtest", remedy="Start this one once it has ended")
            run = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
            (self._folder / run).mkdir(parents=True)
            self._known[run] = State.RUNNING, ""
        threading.Thread(target=self._run, args=(run, asked), name="backtest", daemon=True).start()
        return run

    async def standing(self, _: Request, run: str) -> Standing:
        """How it stands; one of an earlier process has ended."""
        if not _RUN.fullmatch(run) or not (self._folder / run).is_dir():
            raise HTTPException(status.HTTP_404_NOT_FOUND, "There is no such backtest.")
        folder = self._folder / run
        ended = (State.DONE, "") if figures_of(folder) else (State.FAILED, "The pages were ended before it had ended.")
        state, said = self._known.get(run, ended)
        return Standing(state, said, folder)

    def _run(self, run: str, asked: AskedBacktest) -> None:
        def note(line: str) -> None:
            self._known[run] = State.RUNNING, line

        with ExitStack() as cleanup:
            atexit.register(cleanup.close)
            timer = threading.Timer(_MOST_SECONDS, cleanup.close)
            timer.daemon = True
            timer.start()
            try:
                run_backtest(
                    self._folder / run,
                    asked.text,
                    asked.rules,
                    (asked.first, asked.last),
                    threshold=asked.threshold,
                    reason=asked.reason,
                    lake=self._lake,
                    log=note,
                    cleanup=cleanup,
                )
                self._known[run] = State.DONE, ""
            except (NightjarError, OSError) as failure:
                self._known[run] = State.FAILED, str(failure)
            finally:
                timer.cancel()
                atexit.unregister(cleanup.close)


class AirflowBacktests:
    """Runs the DAG `rule_backtest`, whose worker leaves its figures in the same `data_dir`."""

    def __init__(self, runs: DagRuns, folder: Path) -> None:
        self._runs, self._folder = runs, folder / BACKTESTS

    async def start(self, request: Request, asked: AskedBacktest) -> str:
        """Start a run of the DAG; its id.

        Raises:
            HTTPException: Airflow refuses it.
        """
        form = {"rules": asked.text, "first": f"{asked.first}", "last": f"{asked.last}", PUBLISH: False}
        return await self._runs.start(request, form | {"threshold": asked.threshold, "reason": asked.reason})

    async def standing(self, request: Request, run: str) -> Standing:
        """How it stands.

        Raises:
            HTTPException: Airflow has no such run, or does not show it to this user.
        """
        of_run, of_task = await self._runs.states(request, run, _TASK)
        folder = self._folder / run_folder(run)
        if of_task == "success":
            there = "" if figures_of(folder) else f"Its figures are in {BACKTESTS} under data_dir of Airflow's worker."
            return Standing(State.DONE, there, folder)
        if of_run == "failed" or of_task in ("failed", "upstream_failed", "skipped"):
            return Standing(State.FAILED, "The log of the run in Airflow has the reason.", folder)
        if of_task == "running":
            return Standing(State.RUNNING, "", folder)
        paused = await self._runs.is_paused(request)
        said = "The DAG rule_backtest is paused: it begins once somebody switches the DAG on." if paused else ""
        return Standing(State.WAITING, said, folder)


def asked_of(form: Mapping[str, str], text: str, rules: Sequence[Rule], streams: Mapping[str, Stream]) -> AskedBacktest:
    """What a form asks for. rules: those of the text.

    Raises:
        NightjarError: the days cannot be used, or the rules do not compare that threshold.
    """
    first, last = day_of(form.get("first", "")), day_of(form.get("last", ""))
    if first is None or last is None:
        raise SettingsError("are missing", where="the days of the backtest", remedy="Give the first and the last one")
    if not 0 <= (last - first).days < MOST_DAYS:
        remedy = f"Give a last day from the first on, and at most {MOST_DAYS} days"
        raise SettingsError("cannot be tried", where=f"{first} to {last}", remedy=remedy)
    name = form.get("threshold", "").strip()
    for rule in rules if name else ():
        threshold_of(rule, streams[rule.stream], name)
    reason = form.get("reason", "").strip() or "tried in the pages"
    return AskedBacktest(text, rules, first, last, name or first_threshold(rules, streams), reason)


def add_backtests(
    app: FastAPI, rendering: Rendering, backtests: Callable[[], Backtests], *, guard: Any, actor: Any
) -> None:
    """Add the page of a backtest, and its report."""

    @app.get("/backtests/{run}", dependencies=[guard])
    async def page(request: Request, run: str, acting: Acting = actor) -> HTMLResponse:
        found = await backtests().standing(request, run)
        figures = figures_of(found.folder) if found.state is State.DONE else []
        drafts = found.folder / DRAFTS
        return rendering.page(
            request,
            "rule_backtest.html",
            run=run,
            address=f"backtests/{quote(run, safe='')}",
            found=found,
            said=printable(found.said),
            figures=[(each, threshold_figure(each["curve"], len(each["days"]))) for each in figures],
            text=drafts.read_text(encoding="utf-8") if drafts.is_file() else "",
            acting=acting,
        )

    @app.get("/backtests/{run}/report", dependencies=[guard])
    async def report(request: Request, run: str) -> Response:
        file = (await backtests().standing(request, run)).folder / REPORT
        if not file.is_file():
            raise HTTPException(status.HTTP_404_NOT_FOUND, "There is no report here.")
        return Response(file.read_bytes(), media_type="text/html", headers=HEADERS | _STATIC)
