"""`nightjar rules list`: the published versions of rules, with who, when and why."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from nightjar.cli.context import Context

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nightjar.terminal.tables import RecordTable


def list_rules(
    every: Annotated[bool, typer.Option("--all", help="Show every version, not only the last of each rule.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array of versions.")] = False,
) -> None:
    """Show the published rules: versions, states, the event time from which they apply and what the job answered; who
    published them, when, why.

    Of each rule the last version that is in force, and the one that waits for approval if there is one; with --all also
    those that were declined.
    """
    from nightjar.operations.rule_listing import listed
    from nightjar.terminal.console import show_json

    context = Context()
    rows = listed(*context.published, every=every)
    if as_json:
        show_json([{name: value for name, value in row.items() if name != "applies_from"} for row in rows])
        return
    if not rows:
        context.console.print("No rules are published: publish some with `nightjar rules publish`.")
        return
    context.console.print(_table(rows))


def _table(rows: "Iterable[dict[str, Any]]") -> "RecordTable":
    """The versions, a row each."""
    from nightjar.terminal.console import lines
    from nightjar.terminal.tables import RecordTable, prose

    said = (prose("published"), prose("approved or declined"))
    shown = RecordTable("rule", "version", "state", "stream", "group by", "severity", "applies from", *said)
    for row in rows:
        rule = row["rule"]
        shown.add_row(
            row["rule_id"],
            str(row["rule_version"]),
            lines("\n".join(filter(None, (row["state"], row["status"])))),
            rule["stream"],
            ", ".join(rule["group_by"]) or "(all)",
            rule.get("severity", "medium"),
            lines(row["applies_from"]),
            _said(row["author"], row["published"], row["reason"]),
            _decided(row),
        )
    return shown


def _decided(row: "Mapping[str, Any]") -> str:
    """Who approved or declined a version, when and why; empty if nobody did."""
    if row["declined_by"] is None:
        return _said(row["approver"], row["approved"], row["approval_reason"])
    return f"declined: {_said(row['declined_by'], row['declined'], row['decline_reason'])}"


def _said(who: str | None, when: str | None, why: str | None) -> str:
    """Who did something, when and why, as far as each is known."""
    at = None if when is None else f"{when[:10]} {when[11:16]} UTC"
    return ", ".join(filter(None, [who, at, why]))
