"""One stage of a backfill's run: the program that Airflow hands to spark-submit."""

import sys
from typing import Annotated

import typer

from backfill.run import STAGES, Run
from expectations.findings import GateError
from lake.session import open_session
from nightjar import logs
from nightjar.backfill_config import backfill_config
from nightjar.backfill_requests import days_of, request_of
from nightjar.console import show_error
from nightjar.settings import load_settings
from nightjar.sole import sole_writer
from rules.errors import NightjarError
from rules.streams import load_streams


def main(
    stage: Annotated[str, typer.Argument(help=f"One of {', '.join(STAGES)}.")],
    run_id: Annotated[str, typer.Option(help="Names the run's staged folder: the same for all its stages.")],
    day: Annotated[str, typer.Option(help="The day (UTC).")],
    rules: Annotated[str, typer.Option(help="Ids, with commas. Empty: all.")] = "",
    groups: Annotated[str, typer.Option(help="field=value,value;field=value. Empty: all.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing but staged data.")] = False,
    publish: Annotated[bool, typer.Option(help="Put corrections on Kafka.")] = True,
) -> None:
    """Run one stage. Exit code 1: what it checked does not hold; 2: it failed; with one message in either case."""
    try:
        settings = load_settings()
        streams = load_streams(settings.streams)
        config = backfill_config(settings, streams)
        logs.configure(settings.log_level)
        (wanted,) = days_of(day, None)
        request = request_of(
            wanted, streams, run_id=run_id, rules=rules, groups=groups, dry_run=dry_run, publish=publish
        )
        if stage not in STAGES:
            raise NightjarError("is no stage", where=stage, remedy=f"Stages are {', '.join(STAGES)}")
        with sole_writer(config.lake.root):
            session = open_session(config.lake)
            try:
                Run(session, config, request).do(stage)
            finally:
                session.stop()
    except NightjarError as error:
        show_error(error)
        sys.exit(1 if isinstance(error, GateError) else 2)


if __name__ == "__main__":
    typer.run(main)
