"""`nightjar simulate`: runs case files step by step on the engine, without any service."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nightjar.cli.context import Context

if TYPE_CHECKING:
    from nightjar.cases import Case, CaseOutcome, Difference
    from nightjar.rules.streams import Stream
    from nightjar.terminal.console import SafeConsole


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("simulate")(simulate)


def simulate(
    cases: Annotated[list[Path], typer.Argument(help="Case files, or folders of them.", show_default=False)],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result of each case as one JSON object per line.")
    ] = False,
) -> None:
    """Run the rules and events of case files step by step, at the times they give, and check the expected results.

    Exits with 1 and shows the differing rows if a result is not as expected. docs/reference/cases.md describes the
    format.
    """
    from nightjar.cases import check, find_cases, load_case
    from nightjar.cases.simulate import simulate as run
    from nightjar.terminal.console import counted, show_json
    from nightjar.terminal.stages import announce_compiling

    loaded = [load_case(path) for path in find_cases(cases)]
    announce_compiling()
    console = Context().console
    failed = 0
    for case in loaded:
        outcome = run(case)
        differences = check(case.expect, outcome)
        failed += bool(differences)
        if as_json:
            compared = [difference.as_dict() for difference in differences]
            show_json({"case": case.origin, **outcome.as_dict(), "differences": compared})
        else:
            show_case(console, case, outcome, differences, in_full=len(loaded) == 1)
    if not as_json and len(loaded) > 1:
        console.print(f"{len(loaded) - failed} of {counted(len(loaded), 'case')} as expected")
    if failed:
        raise typer.Exit(1)


def show_case(
    console: "SafeConsole", case: "Case", outcome: "CaseOutcome", differences: "list[Difference]", *, in_full: bool
) -> None:
    """Print what came of a case: the verdict and what differs; in_full: everything."""
    from nightjar.cases.checking import described
    from nightjar.terminal.console import line

    checked = bool(case.expect.rows) or case.expect.state is not None
    verdict = ("FAIL", "bold red") if differences else ("ok", "bold green") if checked else ("ran", "bold")
    console.print(line(verdict, f" {case.title} ", (case.origin, "dim")), soft_wrap=True)
    for text in described(differences):
        console.print(line((text, "bold" if not text.startswith("    ") else "")), soft_wrap=True)
    if in_full:
        _show_outcome(console, case, outcome)
    else:
        _show_unused(console, case, outcome)


def _show_outcome(console: "SafeConsole", case: "Case", outcome: "CaseOutcome") -> None:
    from nightjar.terminal.console import counted

    for alert in outcome.alerts:
        _show_alert(console, alert, alert["emitted_at"].replace(".000000", ""))
    for alert in outcome.corrections:
        _show_alert(console, alert, f"backfill, {alert['cause']}:")
    for record in outcome.restrictions:
        until = record["ends_at"].replace(".000000", "")
        _print(console, f"  {record['kind']}: {record['restrict']} {_json(record['group'])} until {until}")
    for record in outcome.rule_status:
        version = "" if record["rule_version"] is None else f" v{record['rule_version']}"
        since = "" if record["effective"] is None else f", applies from {record['effective'].replace('.000000', '')}"
        _print(console, f"  {record['status']} {record['rule_id']}{version}{since}")
        for reason in record["reasons"]:
            for each in reason.split("\n"):
                _print(console, f"    {each}")
    _show_unused(console, case, outcome, every=True)
    for row in outcome.simultaneous:
        at, of = row["event_time"].replace(".000000", ""), f" of {_pairs(row['group'])}" if row["group"] else ""
        ids = ", ".join(row["event_ids"])
        _print(console, f"  order: {ids}{of} happened at the same time, {at}: a hash of their ids orders them (S1.1)")
    for stream, groups in outcome.state.items():
        for group, rows in groups.items():
            _print(console, f"  state: {counted(rows, 'event')} of {stream} by {group or 'nothing'}")


def _show_unused(console: "SafeConsole", case: "Case", outcome: "CaseOutcome", *, every: bool = False) -> None:
    """The events that were late or no events; without `every` where the case expects nothing about them: what such an
    event should have caused is missing for no other reason."""
    for record in outcome.late if every or "late" not in case.expect.rows else ():
        _print(console, f"  late: {_json(record['event'])}")
    for record in outcome.quarantine if every or "quarantine" not in case.expect.rows else ():
        event = _event_named(record["raw"], case.streams[record["stream"]])
        _print(console, f"  quarantine: {event}: {record['reason']}: {record['detail']}")


def _event_named(raw: str, stream: "Stream") -> str:
    """A record that is not an event: by its event id if it has one, else by its beginning."""
    from nightjar.rules.errors import shortened

    try:
        named = stream.path(stream.event_id).value(json.loads(raw))
    except (ValueError, RecursionError):
        named = None
    return shortened(str(named) if isinstance(named, str | int | float) else raw, 60)


def _show_alert(console: "SafeConsole", alert: dict[str, Any], when: str) -> None:
    rule = f"{alert['rule_id']} v{alert['rule_version']}" + _unless_active(alert["rule_state"])
    group = f" of {_pairs(alert['group'])}" if alert["group"] else ""
    _print(console, title=f"  {when} {alert['kind']} {alert['revision']}: {rule} at {alert['event_id']}{group}")
    for text in (_pairs(alert["measures"]), alert["text"]):
        if text:
            _print(console, f"    {text}")


def _print(console: "SafeConsole", text: str = "", *, title: str = "", style: str = "bold") -> None:
    from nightjar.terminal.console import line

    console.print(line((title, style), text), soft_wrap=True)


def _unless_active(state: str) -> str:
    return "" if state == "active" else f" ({state})"


def _pairs(row: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value if isinstance(value, str) else json.dumps(value)}" for name, value in row.items())


def _json(value: Any) -> str:
    from nightjar.cases.documents import json_text

    return json_text(value)
