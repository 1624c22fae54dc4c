"""`nightjar backfill`: a past day evaluated again, compared with what the stream said, and corrected."""

from datetime import date
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("backfill")(backfill)


def backfill(
    day: Annotated[str | None, typer.Option(help="The day (UTC), like 2026-11-20.", show_default=False)] = None,
    days: Annotated[str | None, typer.Option(help="Several: 2026-11-01..2026-11-20.", show_default=False)] = None,
    rules: Annotated[str, typer.Option(help="Only these rules: ids, with commas.")] = "",
    groups: Annotated[str, typer.Option(help="Only these groups: customer_id=c1,c2;terminal_id=m7.")] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be corrected, and write nothing.")
    ] = False,
    publish: Annotated[bool, typer.Option(help="Put the corrections on Kafka.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a day.")] = False,
) -> None:
    """Evaluate a finished day again with all that has come, explain every difference to the stream, and correct it.

    Brings the archive up to date first. Run a day as often as you like: what has not changed is not said again. The
    exit code is 1 where the gate refuses a run, with the expectations that do not hold and rows that break them;
    nothing of it is published then.
    """
    from backfill.gating import docs_folder
    from backfill.run import STAGES, Run
    from expectations.findings import GateError
    from lake.session import open_session
    from nightjar import data_dir, logs
    from nightjar.backfill_config import backfill_config
    from nightjar.backfill_requests import days_of, request_of
    from nightjar.console import result_console, show_json
    from nightjar.settings import load_settings
    from nightjar.sole import sole_writer
    from nightjar.stages import Stages
    from rules.streams import load_streams

    settings = load_settings()
    streams = load_streams(settings.streams)
    config = backfill_config(settings, streams)
    options: dict[str, Any] = {"rules": rules, "groups": groups, "dry_run": dry_run, "publish": publish}
    requests = [request_of(wanted, streams, **options) for wanted in days_of(day, days)]
    logs.configure("warning")
    data_dir.prepare(settings.data_dir)
    stages = Stages()
    found: list[tuple[date, dict[str, Any]]] = []
    with sole_writer(config.lake.root):
        with stages.stage("Spark", "starting"):
            session = open_session(config.lake)
        behind = True  # whether Kafka may hold what the lake does not
        for request in requests:
            counts: dict[str, Any] = {}
            for stage, (_, does) in STAGES.items():
                if stage == "archive" and not behind:
                    continue
                with stages.stage(f"{request.day} {stage}", does):
                    try:
                        counts |= Run(session, config, request).do(stage)
                    except GateError as refused:
                        stages.console.print(str(refused), style="red", markup=False, soft_wrap=True)
                        raise typer.Exit(1) from None
            behind = counts["published"] > 0  # a later day's late events may change what this one has corrected
            found.append((request.day, counts))
            if as_json:
                show_json({"day": request.day.isoformat(), "run_id": request.run_id, **counts})
    if not as_json:
        console = result_console()
        console.print(_table(found, dry_run=dry_run))
        console.print(f"data docs: {docs_folder(config.lake.root) / 'site' / 'index.html'}", soft_wrap=True)


def _table(found: list[tuple[date, dict[str, Any]]], *, dry_run: bool) -> "Table":
    from rich.table import Table

    outcomes = ("matched", "missed", "revised", "retracted")
    table = Table(
        title="what became of the alerts" + (" (nothing was written)" if dry_run else ""), title_justify="left"
    )
    for title in ("day", "violations", *outcomes):
        table.add_column(title, justify="left" if title == "day" else "right")
    table.add_column("causes")
    for title in ("corrections", "published"):
        table.add_column(title, justify="right")
    for day, counts in found:
        causes = ", ".join(f"{name} {count:,}" for name, count in sorted(counts["causes"].items()))
        told = [f"{counts['outcomes'].get(name, 0):,}" for name in outcomes]
        corrected = [f"{counts[name]:,}" for name in ("corrections", "published")]
        table.add_row(f"{day}", f"{counts['violations']:,}", *told, causes, *corrected)
    return table
