"""`nightjar simulate`: case files, played step by step on the bare engine."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from nightjar.cases import Case, Difference, Outcome


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("simulate")(simulate)


def simulate(
    cases: Annotated[list[Path], typer.Argument(help="Case files, or folders of them.", show_default=False)],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what came of each case as one JSON object, a line each.")
    ] = False,
) -> None:
    """Play rules and events step by step, with time under the case's control, and check what it expects.

    Exits with 1 where something is not as expected, and shows the difference row by row. docs/cases.md is the format.
    """
    from rich.console import Console

    from nightjar.cases import check, find_cases, load_case
    from nightjar.simulate import simulate as played

    loaded = [load_case(path) for path in find_cases(cases)]
    console = Console(highlight=False, soft_wrap=True)
    failed = 0
    for case in loaded:
        outcome = played(case)
        differences = check(case.expect, outcome)
        failed += bool(differences)
        if as_json:
            compared = [difference.as_dict() for difference in differences]
            typer.echo(json.dumps({"case": case.origin, **outcome.as_dict(), "differences": compared}))
        else:
            _show(console, case, outcome, differences, in_full=len(loaded) == 1)
    if not as_json and len(loaded) > 1:
        console.print(f"{len(loaded) - failed} of {len(loaded)} cases as expected")
    if failed:
        raise typer.Exit(1)


def _show(
    console: "Console", case: "Case", outcome: "Outcome", differences: "list[Difference]", *, in_full: bool
) -> None:
    checked = bool(case.expect.rows) or case.expect.state is not None
    verdict = "[bold red]FAIL[/]" if differences else "[bold green]ok[/]" if checked else "[bold]ran[/]"
    console.print(verdict, _escaped(case.title), f"[dim]{_escaped(case.origin)}[/]")
    for difference in differences:
        _show_difference(console, difference)
    if in_full:
        _show_outcome(console, outcome)


def _show_difference(console: "Console", difference: "Difference") -> None:
    came = difference.got is not None
    if difference.expected is None:
        said = "came and was not expected"
    else:
        said = "not as expected" if came else "was expected and did not come"
    console.print(f"  [bold]{_escaped(difference.section)}[/]: {said}")
    if difference.expected is not None:
        console.print(f"    expected  {_escaped(_line(difference.expected))}")
    if came:
        console.print(f"    got       {_escaped(_line(difference.got))}")
    for mismatch in difference.mismatches:
        got = "nothing" if mismatch.got is None else _line(mismatch.got)
        compared = f"expected {_line(mismatch.expected)}, got {got}"
        console.print(f"    [yellow]{_escaped(mismatch.path)}[/]: {_escaped(compared)}")


def _show_outcome(console: "Console", outcome: "Outcome") -> None:
    for alert in outcome.alerts:
        _show_alert(console, alert, alert["emitted_at"].replace(".000000", ""))
    for alert in outcome.corrections:
        _show_alert(console, alert, f"at night, {alert['cause']}:")
    for record in outcome.rule_status:
        version = "" if record["rule_version"] is None else f" v{record['rule_version']}"
        reasons = "".join(f"\n    {reason}" for reason in record["reasons"])
        console.print(f"  {record['status']} {_escaped(str(record['rule_id']))}{version}{_escaped(reasons)}")
    for record in outcome.late:
        console.print(f"  late: {_escaped(_line(record['event']))}")
    for record in outcome.quarantine:
        console.print(f"  quarantine: {record['reason']}: {_escaped(record['detail'])}")
    for stream, groups in outcome.state.items():
        for group, rows in groups.items():
            console.print(f"  state: {rows} events of {stream} by {group or 'nothing'}")


def _show_alert(console: "Console", alert: dict[str, Any], when: str) -> None:
    rule = f"{alert['rule_id']} v{alert['rule_version']}" + _unless_active(alert["rule_state"])
    group = f" of {_pairs(alert['group'])}" if alert["group"] else ""
    said = f"{when} {alert['kind']} {alert['revision']}: {rule} at {alert['event_id']}{group}"
    console.print(f"  [bold]{_escaped(said)}[/]")
    for text in (_pairs(alert["measures"]), alert["text"]):
        if text:
            console.print(f"    {_escaped(text)}")


def _unless_active(state: str) -> str:
    return "" if state == "active" else f" ({state})"


def _pairs(row: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value if isinstance(value, str) else json.dumps(value)}" for name, value in row.items())


def _line(value: Any) -> str:
    from nightjar.cases.documents import json_text

    return json_text(value)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
