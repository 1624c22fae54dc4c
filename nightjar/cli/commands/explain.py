"""`nightjar explain`: shows why an alert exists and whether the backfill confirmed it."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import polars as pl

    from backfill.explanation import Explanation
    from nightjar.cli.console import SafeConsole
    from rules.streams import Stream

_SHOWN = 40


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("explain")(explain)


def explain(
    alert_id: Annotated[str, typer.Argument(help="The alert's id.", show_default=False)],
    every: Annotated[
        bool, typer.Option("--all", help=f"Show all events in the window, not only the last {_SHOWN}.")
    ] = False,
    reveal: Annotated[bool, typer.Option("--reveal", help="Show the values of sensitive fields.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show an alert's rule version, the events in its window, its measures, its revisions and its outcome.

    Reads the lake; run `nightjar archive` first to include recent alerts.
    """
    from backfill.explanation import explain as explained
    from nightjar.cli.console import result_console, show_json
    from nightjar.configuration.lake import lake_config
    from nightjar.configuration.settings import load_settings
    from rules.streams import load_streams

    settings = load_settings()
    config = lake_config(settings, load_streams(settings.streams))
    found = explained(config, alert_id)
    if not reveal:
        found = found.masked()
    if as_json:
        show_json(_as_json(found))
    else:
        _show(result_console(), alert_id, found, None if every else _SHOWN)


def _as_json(found: "Explanation") -> dict[str, Any]:
    from rules.model import rule_to_mapping

    return {
        "rule": rule_to_mapping(found.version.rule),
        "rule_version": found.version.version,
        "stream": found.stream.name,
        "event_id": found.event_id,
        "group": json.loads(found.group),
        "holds": found.violated,
        "measures": found.measures,
        "window": found.window.select(*found.stream.fields, "arrival_time").to_dicts(),
        "revisions": found.revisions.drop("original").to_dicts(),
        "outcomes": found.outcomes.to_dicts(),
    }


def _show(console: "SafeConsole", alert_id: str, found: "Explanation", most: int | None) -> None:
    import yaml

    from nightjar.cli.console import counted, line, lines, readable
    from rules.model import rule_to_mapping

    version = found.version
    verdict = ("holds", "bold green") if found.violated else ("does not hold", "bold red")
    if found.measures is None:
        verdict = ("its event is not in the lake", "bold red")
    console.print(line((f"alert {alert_id}", "bold"), "  ", verdict), soft_wrap=True)
    console.print(line(f"group {found.group}, event {found.event_id}"), soft_wrap=True)
    console.print()
    console.print(line((f"rule {version.rule.id} version {version.version}", "bold")), soft_wrap=True)
    written = yaml.safe_dump(rule_to_mapping(version.rule), sort_keys=False, allow_unicode=True, width=110)
    console.print(lines(written), soft_wrap=True, end="")
    if found.measures is not None:
        console.print()
        console.print(line(("measures at the event, recomputed from the lake", "bold")))
        for name, value in found.measures.items():
            console.print(line(f"  {name:<20} {readable(value)}"), soft_wrap=True)
    fields = [*found.stream.fields, "arrival_time"]
    window = found.window if most is None else found.window.tail(most)
    left_out = found.window.height - window.height
    title = f"the group's {counted(found.window.height, 'event')} in the widest window"
    shown = window.select(*fields, _late(found.stream))
    console.print(_table(shown, title + (f", the last {most} of them" if left_out else "")))
    columns = ["revision", "kind", "muted", "source", "cause", "emitted_at", "measures", "text"]
    console.print(_table(found.revisions.select(columns), "revisions"))
    if found.outcomes.height:
        judged = ["day", "outcome", "cause", "stream_revision", "stream_measures", "measures"]
        console.print(_table(found.outcomes.select(judged), "what the backfill found"))
    else:
        console.print("no backfill has covered this alert yet")


def _late(stream: "Stream") -> "pl.Expr":
    import polars as pl

    lateness = (pl.col("arrival_time") - pl.col(stream.event_time)).dt.total_microseconds()
    return pl.when(lateness > stream.allowed_lateness).then(pl.lit("late")).otherwise(pl.lit("")).alias("")


def _table(rows: "pl.DataFrame", title: str) -> Any:
    from nightjar.cli.console import readable
    from nightjar.cli.tables import Column, Records

    measures = {"measures", "stream_measures"}
    table = Records(*(Column(name, is_prose=name in measures | {"text"}) for name in rows.columns), title=title)

    def cell(name: str, value: Any) -> str:
        if value is None:
            return ""
        return readable(json.loads(value)) if name in measures else str(value).removesuffix("+00:00")

    for row in rows.iter_rows(named=True):
        table.add_row(*(cell(name, value) for name, value in row.items()))
    return table
