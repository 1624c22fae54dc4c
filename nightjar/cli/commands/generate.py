"""`nightjar generate`: writes simulated events as Parquet files."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nightjar.cli.context import Context

if TYPE_CHECKING:
    from nightjar.terminal.tables import RecordTable


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("generate")(generate)


def generate(
    out: Annotated[Path, typer.Option(help="Folder to write transactions.parquet and logins.parquet into.")],
    events: Annotated[
        int | None, typer.Option(help="Number of payments. Default: two per customer and day.", show_default=False)
    ] = None,
    days: Annotated[int, typer.Option(help="Number of days to spread them over.")] = 7,
    customers: Annotated[int, typer.Option(help="Number of customers.")] = 5_000,
    terminals: Annotated[int, typer.Option(help="Number of terminals.")] = 2_000,
    logins: Annotated[float, typer.Option(help="Genuine logins per payment.")] = 0.4,
    fraud: Annotated[float, typer.Option(help="Share of payments that are fraudulent.")] = 0.005,
    start: Annotated[datetime, typer.Option(formats=["%Y-%m-%d"], help="First day, UTC.")] = datetime(2026, 1, 5),  # noqa: DTZ001  typer gives such a value too; the zone is added below
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same events.")] = 0,
    prefix: Annotated[
        str,
        typer.Option(
            help="Begins every event's id. Events sent after others need another one, or their ids are the same.",
            show_default=False,
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as one JSON object.")] = False,
) -> None:
    """Simulate card payments and logins with fraud, and write them as Parquet.

    Each file has the fields of its stream plus `scenario`, the ground truth: empty for genuine events. Rules never
    see it.
    """
    from nightjar.generate import Options
    from nightjar.operations.simulated_files import write_simulated
    from nightjar.terminal.console import counted, line, show_json

    options = Options(
        events=2 * customers * days if events is None else events,
        days=days,
        customers=customers,
        terminals=terminals,
        logins=logins,
        fraud=fraud,
        start=start.replace(tzinfo=UTC),
        seed=seed,
        prefix=prefix,
    )
    context = Context()
    with context.progress.status(f"simulating {options.events:,} payments and their logins") as status:
        written = write_simulated(options, out, lambda path: status.update(line(f"writing {path}")))
    if as_json:
        show_json(written)
        return
    title = f"seed {options.seed}, {counted(options.days, 'day')} from {start:%Y-%m-%d}"
    context.console.print(_table(written, title))


def _table(written: dict[str, dict[str, int | str]], title: str) -> "RecordTable":
    """The files, and how many events of each scenario they have."""
    from nightjar.generate import Scenario
    from nightjar.terminal.tables import RecordTable, number

    shown = RecordTable("file", number("events"), *map(number, Scenario), title=title)
    for row in written.values():
        shown.add_row(*(f"{value:,}" if isinstance(value, int) else value for value in row.values()))
    return shown
