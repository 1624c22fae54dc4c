"""`nightjar rules list`: the published versions of rules, with who, when and why."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nightjar.rules.publishing import Answer
    from nightjar.rules.rulebook import RuleBook
    from nightjar.rules.versions import RuleVersion
    from nightjar.terminal.tables import Records


def list_rules(
    every: Annotated[bool, typer.Option("--all", help="Show every version, not only the last of each rule.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array of versions.")] = False,
) -> None:
    """Show the published rules: versions, states, the event time from which they apply and what the job answered; who
    published them, when, why.

    Of each rule the last version that is in force, and the one that waits for approval if there is one.
    """
    from nightjar.configuration.settings import load_settings
    from nightjar.kafka import rule_topics
    from nightjar.rules.streams import load_streams
    from nightjar.terminal.console import result_console, show_json

    settings = load_settings()
    book, unanswered = rule_topics.expected_book(settings, load_streams(settings.streams))
    rows = [_row(book, version, unanswered) for version in (book.every if every else _current(book))]
    if as_json:
        show_json([{name: value for name, value in row.items() if name != "applies_from"} for row in rows])
        return
    console = result_console()
    if not rows:
        console.print("No rules are published: publish some with `nightjar rules publish`.")
        return
    console.print(_table(rows))


def _table(rows: "Iterable[dict[str, Any]]") -> "Records":
    """The versions, a row each."""
    from nightjar.terminal.console import lines
    from nightjar.terminal.tables import Records, prose

    said = (prose("published"), prose("approved"))
    shown = Records("rule", "version", "state", "stream", "group by", "severity", "applies from", *said)
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
            _said(row["approver"], row["approved"], row["approval_reason"]),
        )
    return shown


def _said(who: str | None, when: str | None, why: str | None) -> str:
    """Who did something, when and why, as far as each is known."""
    at = None if when is None else f"{when[:10]} {when[11:16]} UTC"
    return ", ".join(filter(None, [who, at, why]))


def _current(book: "RuleBook") -> "Iterable[RuleVersion]":
    """Of each rule the last version in force, then the newest if it is proposed."""
    for rule_id in book.rule_ids:
        versions = book.of_rule(rule_id)
        yield from [version for version in versions if not version.is_proposed][-1:]
        yield from [version for version in versions[-1:] if version.is_proposed]


def _status(book: "RuleBook", version: "RuleVersion") -> "Answer":
    """The job's last answer about a version."""
    from nightjar.rules.publishing import Answer

    name = version.rule.id, version.version
    if name in book.superseded:
        return Answer.SUPERSEDED
    if version.is_proposed:
        return Answer.PROPOSED
    if name in book.retired:
        return Answer.RETIRED
    return Answer.ACTIVE if name in book.active else Answer.ACCEPTED


def _row(book: "RuleBook", version: "RuleVersion", unanswered: set[tuple[str, int]]) -> dict[str, Any]:
    from nightjar.rules.model import rule_to_mapping
    from nightjar.rules.rulebook import effective_text
    from nightjar.rules.timestamps import iso_text

    name = version.rule.id, version.version
    approval, effective = version.approval, effective_text(version)
    superseded = book.superseded.get(name)
    if version.is_proposed:
        waits = book.of_rule(version.rule.id)[-1] is version
        applies_from = "waiting for approval" if waits else "never: overtaken before it was approved"
    elif name in unanswered:
        applies_from = "waiting for the job to answer"
    else:
        applies_from = f"{effective[:19]}Z" if effective else "waiting for the job to add a shuffle key"
        if superseded is not None and superseded.since is not None:
            applies_from += f"\nuntil {iso_text(superseded.since)[:19]}Z"
    return {
        "rule_id": version.rule.id,
        "rule_version": version.version,
        "state": version.rule.state.value,
        "effective": effective,
        "answered": name not in unanswered,
        "status": None if name in unanswered else _status(book, version).value,
        "superseded_by": None if superseded is None else superseded.by,
        "superseded_from": None if superseded is None or superseded.since is None else iso_text(superseded.since),
        "published": iso_text(book.published[name]),
        "author": version.rule.author,
        "reason": version.rule.reason,
        "proposed": version.is_proposed,
        "approved": None if approval is None else iso_text(book.answered[name]),
        "approver": None if approval is None else approval.author,
        "approval_reason": None if approval is None else approval.reason,
        "rule": rule_to_mapping(version.rule),
        "applies_from": applies_from,
    }
