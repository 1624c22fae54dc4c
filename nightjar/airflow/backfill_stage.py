"""Runs one stage of a backfill: the program behind Airflow's tasks, run by the stage server in its Spark session.

`python -m nightjar.airflow.backfill_stage` runs a stage in a Spark session of its own.
"""

import sys
import traceback
from collections.abc import Sequence
from datetime import date
from typing import Annotated, Any

import structlog
import typer

from nightjar.airflow.submission import ARCHIVE_NOW, FAILED, PENDING, VERDICT
from nightjar.airflow.task_log import RULES, SUMMARY
from nightjar.backfill.config import BackfillConfig, RunRequest
from nightjar.backfill.publish.summary import differences, summary
from nightjar.backfill.publish.verdicts import HeldBackError
from nightjar.backfill.run import Run, run_all
from nightjar.backfill.stages import STAGES
from nightjar.backfill.upkeep.pending import PendingDay, pending_days
from nightjar.configuration import logs
from nightjar.configuration.backfill import backfill_config
from nightjar.configuration.settings import load_settings
from nightjar.expectations.findings import VerdictError
from nightjar.kafka.clients import refuse_others
from nightjar.lake.archive import archive
from nightjar.lake.session import open_session
from nightjar.lake.stream_state import rule_book
from nightjar.operations.backfill_requests import days_of, request_of
from nightjar.operations.locks import sole_writer
from nightjar.rules.errors import NightjarError, printable, shortened
from nightjar.rules.streams import load_streams
from nightjar.terminal.console import show_error

_log = structlog.get_logger(__name__)

_OFFERED = 1000  # ids of rules in a form


def main(
    stage: Annotated[
        str,
        typer.Argument(
            help=f"One of {', '.join(STAGES)}; or {PENDING}: run the earlier pending days; or {ARCHIVE_NOW}: archive "
            "without a run."
        ),
    ],
    run_id: Annotated[str, typer.Option(help="Name of the run's staging folder: the same for all its stages.")],
    day: Annotated[str, typer.Option(help="The day (UTC).")],
    rules: Annotated[str, typer.Option(help="Comma-separated ids. Empty: all.")] = "",
    groups: Annotated[str, typer.Option(help="field=value,value;field=value. Empty: all.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write only staged data.")] = False,
    publish: Annotated[bool, typer.Option(help="Publish corrections to Kafka.")] = True,
) -> None:
    """Run one stage. Exit code 3: a check failed, and would fail again; 2: the stage itself failed.

    The last lines on standard error give the reason; the traceback of a crash is in the log before them.
    """
    try:
        settings = load_settings()
        streams = load_streams(settings.streams)
        config = backfill_config(settings, streams)
        refuse_others(settings)
        logs.configure(settings.log_level)
        (wanted,) = days_of(day, None)
        request = request_of(
            wanted, streams, run_id=run_id, rules=rules, groups=groups, dry_run=dry_run, publish=publish
        )
        if stage not in (*STAGES, *_OTHERS):
            names = ", ".join((*STAGES, *_OTHERS))
            raise NightjarError("unknown stage", where=stage, remedy=f"Stages are {names}")
        with sole_writer(config.lake.root) as fence:
            config = config.fenced(fence)
            _OTHERS[stage](config, request) if stage in _OTHERS else _one(config, request, stage)
    except NightjarError as error:
        show_error(error)
        sys.exit(VERDICT if isinstance(error, VerdictError) else FAILED)
    # A library that calls sys.exit, as PySpark does if a dependency is missing, must not count as a finished stage.
    except (Exception, SystemExit) as crash:  # noqa: BLE001  on-call staff get one line, and the exit code is not 1
        _log.error("the stage crashed", stage=stage, traceback=traceback.format_exc())
        show_error(NightjarError(_in_a_line(crash)))
        sys.exit(FAILED)


def _one(config: BackfillConfig, request: RunRequest, stage: str) -> None:
    run = Run(open_session(config.lake), config, request)
    try:
        counts = run.do(stage)
    except HeldBackError:
        _summarise(run, run.counts)
        raise
    _summarise(run, run.counts if stage == STAGES[-1] else counts)
    if stage == "archive":
        _rules(config)
    elif stage == "reconcile":
        _log.info("differences", **differences(request.staged(config.lake)))
    elif stage == STAGES[-1]:
        _logged(pending_days(config))


def _summarise(run: Run, counts: dict[str, Any]) -> None:
    """Print the XCom of the task: of the last stage the whole run's result in a few numbers."""
    found = {"day": run.request.day.isoformat(), "run": run.request.run_id}
    found |= summary(counts) if "published" in counts else counts
    _log.info(SUMMARY, summary=found)


def _pending(config: BackfillConfig, before: RunRequest) -> None:
    """Run the pending days before the request's day; a rejected day does not stop the others."""
    days = _logged(pending_days(config, before=before.day))
    if not days:
        _log.info("no earlier day is pending")
        return
    requests = [request_of(day, config.streams, run_id=f"{before.run_id}-{day}") for day in days]
    session, verdicts = open_session(config.lake), list[VerdictError]()
    for ended in run_all(session, config, requests, archived=True):
        _log.info(f"{ended.request.day} is done", **summary(ended.counts))
        _summarise(Run(session, config, ended.request), ended.counts)
        if ended.verdict is not None:
            verdicts.append(ended.verdict)
    if verdicts:
        raise VerdictError(
            "\n".join([f"{len(verdicts)} of {len(days)} pending days need attention", *map(str, verdicts)])
        )


def _archive_now(config: BackfillConfig, _: RunRequest) -> None:
    archived = archive(open_session(config.lake), config.lake)
    _log.info(SUMMARY, summary={"archived": dict(archived.rows)})
    _rules(config)


_OTHERS = {PENDING: _pending, ARCHIVE_NOW: _archive_now}


def _rules(config: BackfillConfig) -> None:
    """Print the ids of the published rules, which the forms of the DAGs offer."""
    book = rule_book(config.lake.root, config.streams)
    _log.info(RULES, rules=sorted(book.ruleset.rule_ids)[:_OFFERED])


def _logged(pending: list[PendingDay]) -> list[date]:
    """Log the pending days with their reasons, one line for all with the same reason; return their dates."""
    reasons: dict[str, list[str]] = {}
    for found in pending:
        reasons.setdefault(found.why, []).append(str(found.day))
    for why, days in reasons.items():
        _log.warning(f"{len(days)} pending {'day' if len(days) == 1 else 'days'}: {', '.join(days)}", why=why)
    return [found.day for found in pending]


def _in_a_line(crash: BaseException) -> str:
    """The exception as one line, without Python or JVM stack frames."""
    message = " ".join(line.strip() for line in str(crash).partition("\n\tat ")[0].splitlines())
    return f"{type(crash).__name__}: {shortened(printable(message), 1000)}"


def program(arguments: Sequence[str]) -> None:
    """Run the program with these arguments; always raises SystemExit."""
    app = typer.Typer(add_completion=False)
    app.command()(main)
    app(list(arguments), prog_name="backfill_stage")


if __name__ == "__main__":
    program(sys.argv[1:])
