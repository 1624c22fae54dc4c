"""`nightjar evaluate`: evaluates rules over a file of events, without any service."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nightjar.cli.context import Context
from nightjar.cli.event_files import EVENTS_HELP, ZONE_HELP, Delimiter, MaxBadLines, delimiter_of, read_shown
from nightjar.rules.errors import SettingsError
from nightjar.rules.zones import zone_named

if TYPE_CHECKING:
    from nightjar.rules.truth import Truth
    from nightjar.terminal.tables import RecordTable


_UNIONS = "Of a union: a folder with a file, or folder, for each of its streams, named as that is in the union."


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("evaluate")(evaluate)


def evaluate(
    stream: Annotated[str, typer.Option(help="The stream the events belong to.", show_default=False)],
    rules: Annotated[Path, typer.Option(help="Rules as YAML or JSON.", show_default=False)],
    events: Annotated[Path, typer.Option(help=f"{EVENTS_HELP} {_UNIONS}", show_default=False)],
    out: Annotated[Path, typer.Option(help="Parquet file to write.", show_default=False)],
    streams: Annotated[
        Path | None,
        typer.Option(help="TOML file of stream declarations, instead of the configured.", show_default=False),
    ] = None,
    zone: Annotated[str | None, typer.Option(help=ZONE_HELP, show_default=False)] = None,
    delimiter: Delimiter = None,
    max_bad_lines: MaxBadLines = 0,
    table: Annotated[
        list[str] | None,
        typer.Option(
            help="Rows of a table that rules ask, as in blocked_ips=addresses.txt: keys, one a line, or .csv as for "
            "`nightjar table import`. May be given several times.",
            show_default=False,
        ),
    ] = None,
    measures: Annotated[
        bool, typer.Option("--measures", help="Write every evaluated event of every rule, not only the violations.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as one JSON object.")] = False,
) -> None:
    """Evaluate rules over a file of events and write the violations.

    Each row has rule_id, rule_version, event_id, event_time, violated, group and measures (JSON objects; decimals as
    text with all their digits). Each rule applies from its `effective` time on, or else from the beginning. Rules on
    other streams in the file are checked but not evaluated.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from nightjar.files.bad_lines import BadLines
    from nightjar.files.evaluate import evaluate as evaluated
    from nightjar.files.evaluate import write_truth
    from nightjar.files.table_files import rows_of_files
    from nightjar.rules.model import load_rules
    from nightjar.terminal.console import counted, show_json
    from nightjar.terminal.stages import announce_compiling

    context = Context(streams=streams)
    declared = context.stream(stream)
    _refuse_unfit(out, events)
    rows_given = rows_of_files(table or [], declared.tables)
    times_of, separated, bad = zone_named(zone, "--zone"), delimiter_of(delimiter), BadLines(max_bad_lines)
    loaded = load_rules(rules, context.streams)
    if all(rule.stream != stream for rule in loaded):
        others = ", ".join(sorted({rule.stream for rule in loaded}))
        raise SettingsError(
            f"has no rule on stream {stream}", where=str(rules), remedy=f"Its rules are on {others}: set --stream"
        )
    announce_compiling()
    texts = [TextColumn(f"{{task.{name}}}", markup=False) for name in ("description", "fields[shown]")]
    columns = (texts[0], BarColumn(), texts[1], TimeElapsedColumn())
    with Progress(*columns, console=context.progress, transient=True) as bar:
        task = bar.add_task(f"reading {events}", total=None, shown="")
        read = read_shown(context.progress, events, declared, bad=bad, zone=times_of, delimiter=separated, coded=True)
        bar.update(task, description="evaluating", shown=counted(read.num_rows, "event"))
        truth = evaluated(declared, loaded, read, rows_given)
        rows = truth.rows(every=measures)
        bar.update(task, description=f"writing {out}", total=rows, shown=counted(rows, "row"))
        write_truth(truth, out, every=measures, progress=lambda written: bar.advance(task, written))
    if as_json:
        show_json({"out": str(out), "rows": rows, "bad_lines": bad.count, **_summary(truth)})
    else:
        context.console.print(_shown(truth, f"{counted(rows, 'row')} in {out}", bad.count))


def _refuse_unfit(out: Path, events: Path) -> None:
    """Raise SettingsError if the results cannot be written there."""
    if out.suffix.lower() != ".parquet":
        raise SettingsError("does not end in .parquet", where=str(out), remedy="Name it like violations.parquet")
    if not out.parent.is_dir():
        raise SettingsError(
            "cannot be written: the folder does not exist", where=str(out), remedy="Create it, or name another"
        )
    if out.resolve() == events.resolve():
        raise SettingsError("is the file of events itself", where=str(out), remedy="Name another file")
    if events.resolve() in out.resolve().parents:
        raise SettingsError("lies in the folder of events", where=str(out), remedy="Name a file outside it")


def _summary(truth: "Truth") -> dict[str, object]:
    return {
        "events": truth.events,
        "duplicates": truth.duplicates,
        "rules": [
            {
                "rule_id": verdict.version.rule.id,
                "rule_version": verdict.version.version,
                "evaluated": verdict.evaluated,
                "violations": verdict.violations,
            }
            for verdict in truth.verdicts
        ],
        "allow_rules": [{"rule_id": rule_id, "silenced": count} for rule_id, count in truth.silenced.items()],
    }


def _shown(truth: "Truth", title: str, bad: int) -> "RecordTable":
    from nightjar.terminal.console import counted
    from nightjar.terminal.tables import RecordTable, number

    duplicates = f", including {counted(truth.duplicates, 'duplicate')}" if truth.duplicates else ""
    left_out = f"; {counted(bad, 'bad line')} left out" if bad else ""
    silenced = "".join(
        f"; {counted(count, 'alert')} silenced by {rule_id}" for rule_id, count in truth.silenced.items()
    )
    caption = f"{counted(truth.events, 'event')}{duplicates}{left_out}{silenced}"
    table = RecordTable("rule", number("evaluated"), number("violations"), title=title, caption=caption)
    for verdict in truth.verdicts:
        table.add_row(verdict.version.rule.id, f"{verdict.evaluated:,}", f"{verdict.violations:,}")
    return table
