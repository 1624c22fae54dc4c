"""`nightjar explain`: shows why an alert exists and whether the backfill confirmed it."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nightjar.cli.context import Context
from nightjar.rules.timestamps import iso_text

if TYPE_CHECKING:
    import polars as pl

    from nightjar.backfill.explain.explanation import Explanation
    from nightjar.rules.streams import Stream
    from nightjar.rules.versions import RuleVersion
    from nightjar.terminal.console import SafeConsole

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
    """Show how an alert stands and why: its rule version, the events in its window, its measures and its revisions.

    An alert that was retracted, revised or muted says by whom and why. Reads the lake, and from Kafka what the archive
    has yet to bring there; says so where it cannot.
    """
    from nightjar.backfill.explain.explanation import explain as explained
    from nightjar.operations.unarchived import OnKafka
    from nightjar.terminal.console import show_json

    context = Context()
    found = explained(context.backfill(), alert_id, OnKafka(context.settings))
    if not reveal:
        found = found.masked()
    if as_json:
        show_json(_as_json(found))
    else:
        _show(context.console, alert_id, found, None if every else _SHOWN)


def _as_json(found: "Explanation") -> dict[str, Any]:
    from nightjar.rules.model import rule_to_mapping

    status, evaluated = found.status, found.found
    applies, violation = evaluated.applies, evaluated.violation
    before, after = evaluated.simultaneous
    return {
        "state": {
            "published": status.published.value,
            "by": status.by,
            "night": status.night,
            "muted": status.muted,
            "muted_by": status.muted_by,
            "allowed_by": status.allowed_by,
            "confirmed": status.confirmed,
            "judged_by": status.judged_by,
            "headline": status.headline,
            "reasons": status.reasons,
        },
        "rule": rule_to_mapping(found.version.rule),
        "rule_version": found.version.version,
        "applies": applies
        and {
            "rule_version": applies.version,
            "effective": iso_text(applies.effective),
            "state": applies.rule.state.value,
            "alert_id": None if violation is None else violation["alert_id"],
        },
        "stream": found.stream.name,
        "event_id": found.event_id,
        "group": json.loads(found.group),
        "holds": found.violated,
        "measures": evaluated.measures,
        "measures_of_version": evaluated.shown.version,
        "window": evaluated.window.select(*found.stream.fields, "arrival_time").to_dicts(),
        "counted": [asdict(each) for each in evaluated.counted],
        "simultaneous": {"before": before, "after": after},
        "revisions": found.revisions.drop("original").to_dicts(),
        "outcomes": found.outcomes.to_dicts(),
        "notes": found.notes,
    }


def _show(console: "SafeConsole", alert_id: str, found: "Explanation", most: int | None) -> None:
    import polars as pl

    from nightjar.rules.display import readable
    from nightjar.terminal.console import counted, line

    status, evaluated = found.status, found.found
    style = "bold green" if status.confirmed and status.published in ("announced", "revised") else "bold red"
    console.print(line((f"alert {alert_id}", "bold"), "  ", (status.headline, style)), soft_wrap=True)
    for reason in (*status.reasons, *found.notes):
        console.print(line(f"  {reason}"), soft_wrap=True)
    console.print(line(f"group {found.group}, event {found.event_id}"), soft_wrap=True)
    versions = [found.version] if evaluated.shown is found.version else [found.version, evaluated.shown]
    for version in versions:
        _show_rule(console, version, "" if version is found.version else ", which applies to its event")
    whose = "" if len(versions) == 1 else f" of version {evaluated.shown.version}"
    if evaluated.measures is not None:
        console.print()
        console.print(line((f"measures{whose} at the event, recomputed from the lake", "bold")))
        for name, value in evaluated.measures.items():
            console.print(line(f"  {name:<20} {readable(value)}"), soft_wrap=True)
    fields = [*found.stream.fields, "arrival_time"]
    window = evaluated.window if most is None else evaluated.window.tail(most)
    left_out = evaluated.window.height - window.height
    title = f"the group's {counted(evaluated.window.height, 'event')} in the widest window{whose}"
    shown = window.select(*fields, _late(found.stream))
    console.print(_table(shown, title + (f", the last {most} of them" if left_out else "")))
    if any(evaluated.simultaneous):
        console.print(line(_order(found.stream.tiebreaker, *evaluated.simultaneous)), soft_wrap=True)
    if evaluated.counted:
        rows = pl.DataFrame([asdict(each) for each in evaluated.counted])
        console.print(_table(rows, "the violations of other rules that it may count"))
    columns = ["revision", "kind", "muted", "source", "cause", "emitted_at", "measures", "text"]
    console.print(_table(found.revisions.select(columns), "revisions"))
    if found.outcomes.height:
        judged = ["day", "outcome", "cause", "stream_revision", "stream_measures", "measures"]
        console.print(_table(found.outcomes.select(judged), "what the backfill found"))


def _show_rule(console: "SafeConsole", version: "RuleVersion", about: str) -> None:
    import yaml

    from nightjar.rules.model import rule_to_mapping
    from nightjar.terminal.console import line, lines

    console.print()
    console.print(line((f"rule {version.rule.id} version {version.version}{about}", "bold")), soft_wrap=True)
    written = yaml.safe_dump(rule_to_mapping(version.rule), sort_keys=False, allow_unicode=True, width=110)
    console.print(lines(written), soft_wrap=True, end="")


def _order(tiebreaker: str | None, before: int, after: int) -> str:
    """What has decided the order of events."""
    from nightjar.terminal.console import counted

    others = f"{counted(before + after, 'other event')} of the group happened at the same time as this one"
    by = f"{tiebreaker}, then " if tiebreaker else ""
    return f"{others}: by {by}a hash of their ids (S1.1) {before} before it, so in its window, and {after} after it"


def _late(stream: "Stream") -> "pl.Expr":
    import polars as pl

    lateness = (pl.col("arrival_time") - pl.col(stream.event_time)).dt.total_microseconds()
    return pl.when(lateness > stream.allowed_lateness).then(pl.lit("late")).otherwise(pl.lit("")).alias("")


def _table(rows: "pl.DataFrame", title: str) -> Any:
    from nightjar.rules.display import readable
    from nightjar.terminal.tables import Heading, RecordTable

    measures = {"measures", "stream_measures"}
    table = RecordTable(*(Heading(name, is_prose=name in measures | {"text"}) for name in rows.columns), title=title)

    def cell(name: str, value: Any) -> str:
        if value is None:
            return ""
        return readable(json.loads(value)) if name in measures else str(value).removesuffix("+00:00")

    for row in rows.iter_rows(named=True):
        table.add_row(*(cell(name, value) for name, value in row.items()))
    return table
