"""One stage of a backfill's run: the program of Airflow's tasks, which the stage server runs in its one Spark session.

Also a program by itself, `python -m nightjar.airflow.backfill_stage`, which does the same in a session of its own.
"""

import sys
import traceback
from collections.abc import Sequence
from datetime import date
from typing import Annotated

import structlog
import typer

from backfill.config import BackfillConfig, Request
from backfill.pending import PendingDay, pending_days
from backfill.run import Run, run_all
from backfill.stages import STAGES
from expectations.findings import VerdictError
from lake.session import open_session
from nightjar.airflow.backfill_requests import days_of, request_of
from nightjar.airflow.submission import FAILED, PENDING, VERDICT
from nightjar.cli.console import show_error
from nightjar.configuration import logs
from nightjar.configuration.backfill import backfill_config
from nightjar.configuration.settings import load_settings
from nightjar.operations.locks import sole_writer
from rules.errors import NightjarError, printable, shortened
from rules.streams import load_streams

_log = structlog.get_logger(__name__)


def main(
    stage: Annotated[str, typer.Argument(help=f"One of {', '.join(STAGES)}; or {PENDING}: the pending days before.")],
    run_id: Annotated[str, typer.Option(help="Names the run's staged folder: the same for all its stages.")],
    day: Annotated[str, typer.Option(help="The day (UTC).")],
    rules: Annotated[str, typer.Option(help="Ids, with commas. Empty: all.")] = "",
    groups: Annotated[str, typer.Option(help="field=value,value;field=value. Empty: all.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing but staged data.")] = False,
    publish: Annotated[bool, typer.Option(help="Put corrections on Kafka.")] = True,
) -> None:
    """Run one stage. Exit code 3: what it checked does not hold, and would not the next time; 2: it failed.

    The last lines on standard error say what is wrong; the traceback of a crash is in the log before them.
    """
    try:
        settings = load_settings()
        streams = load_streams(settings.streams)
        config = backfill_config(settings, streams)
        logs.configure(settings.log_level)
        (wanted,) = days_of(day, None)
        request = request_of(
            wanted, streams, run_id=run_id, rules=rules, groups=groups, dry_run=dry_run, publish=publish
        )
        if stage not in (*STAGES, PENDING):
            raise NightjarError("unknown stage", where=stage, remedy=f"Stages are {', '.join(STAGES)} and {PENDING}")
        with sole_writer(config.lake.root):
            _pending(config, request) if stage == PENDING else _one(config, request, stage)
    except NightjarError as error:
        show_error(error)
        sys.exit(VERDICT if isinstance(error, VerdictError) else FAILED)
    # A library that exits, as PySpark does where it lacks another, must not pass for a stage that is done.
    except (Exception, SystemExit) as crash:  # noqa: BLE001  whoever is on call reads one line, and the code is not 1
        _log.error("the stage has crashed", stage=stage, traceback=traceback.format_exc())
        show_error(NightjarError(_in_a_line(crash)))
        sys.exit(FAILED)


def _one(config: BackfillConfig, request: Request, stage: str) -> None:
    Run(open_session(config.lake), config, request).do(stage)
    if stage == "publish":
        _named(pending_days(config))


def _pending(config: BackfillConfig, before: Request) -> None:
    """Run the pending days before the request's; a verdict about one does not stop the others."""
    days = _named(pending_days(config, before=before.day))
    if not days:
        _log.info("no earlier day is pending")
        return
    requests = [request_of(day, config.streams, run_id=f"{before.run_id}-{day}") for day in days]
    session = open_session(config.lake)
    verdicts = [ended.verdict for ended in run_all(session, config, requests, archived=True) if ended.verdict]
    if verdicts:
        raise VerdictError(
            "\n".join([f"{len(verdicts)} of {len(days)} pending days need a person", *map(str, verdicts)])
        )


def _named(pending: list[PendingDay]) -> list[date]:
    """The days, which the log is told of with their reasons."""
    for found in pending:
        _log.warning("a day is pending", day=str(found.day), why=found.why)
    return [found.day for found in pending]


def _in_a_line(crash: BaseException) -> str:
    """What is known of the cause, without the frames of Python and of the JVM."""
    said = " ".join(line.strip() for line in str(crash).partition("\n\tat ")[0].splitlines())
    return f"{type(crash).__name__}: {shortened(printable(said), 1000)}"


def program(arguments: Sequence[str]) -> None:
    """The program with these arguments; it ends as one, with SystemExit."""
    app = typer.Typer(add_completion=False)
    app.command()(main)
    app(list(arguments), prog_name="backfill_stage")


if __name__ == "__main__":
    program(sys.argv[1:])
