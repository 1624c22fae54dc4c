"""The pages of rules: what is published, by whom and why, what waits for approval, and the form that approves or
declines it.

What it does not do: decide who may approve what. That is `operations.rule_publishing`, as for `nightjar rules approve`
and `decline`, with the user of the request as the one who does it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, HTTPException, Request, Response, status
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse

from nightjar.backfill.publish.precision import PRECISION_DAYS, of_rules
from nightjar.operations.past_notices import past_notices
from nightjar.operations.rule_listing import listed, waiting
from nightjar.operations.rule_publishing import approving, in_force
from nightjar.pages import drawing
from nightjar.pages.acting import Acting, acted, reason_of, version_of
from nightjar.pages.lake_reader import RULE_DAYS, LakeReader
from nightjar.pages.rendering import Rendering, see_other
from nightjar.pages.rule_reader import RuleReader
from nightjar.pages.snoozes import group_of, on_now, shown
from nightjar.rules.display import changed_lines, yaml_text
from nightjar.rules.errors import NightjarError, SettingsError
from nightjar.rules.model import MAX_REASON
from nightjar.rules.names import rule_meant
from nightjar.rules.rulebook import RuleBook
from nightjar.rules.versions import RuleVersion
from nightjar.terminal.stages import Stages


@dataclass(frozen=True)
class Proposal:
    """A version that waits for approval. lines: its difference from the version in force.

    notices: what approving it means for the past; refusal: why this user cannot approve it, empty if they can.
    """

    version: RuleVersion
    before: RuleVersion | None
    lines: list[str]
    notices: list[str]
    refusal: str


def add_rules(
    app: FastAPI,
    rendering: Rendering,
    reader: Callable[[], LakeReader],
    rules: Callable[[], RuleReader],
    *,
    guard: Any,
    actor: Any,
) -> None:
    """Add the pages, and the addresses that take their form."""

    @app.get("/rules", dependencies=[guard])
    def every_rule(request: Request, acting: Acting = actor) -> HTMLResponse:
        lake = reader()
        (book, unanswered), known = rules().book_or(lake.book)
        newest = lake.newest_day()
        since = None if newest is None else newest - timedelta(days=RULE_DAYS - 1)
        counts = {} if newest is None or since is None else lake.alerts_a_day(since, newest)
        lines = {rule_id: drawing.sparkline(days, newest, RULE_DAYS) for rule_id, days in counts.items() if newest}
        totals = {rule_id: sum(count for _, count in days) for rule_id, days in counts.items()}
        return rendering.page(
            request,
            "rules.html",
            rules=listed(book, unanswered, every=False),
            waiting=waiting(book),
            severities={rule_id: book.of_rule(rule_id)[-1].rule.severity.value for rule_id in book.rule_ids},
            lines=lines,
            totals=totals,
            labelled=of_rules(lake.precision()),
            labelled_days=PRECISION_DAYS,
            days=RULE_DAYS,
            newest=newest,
            acting=acting,
            known=known,
            snoozed=on_now(lake.snoozes()),
        )

    @app.get("/rules/{rule_id}", dependencies=[guard])
    def rule(request: Request, rule_id: str, sent: int | None = None, acting: Acting = actor) -> HTMLResponse:
        lake = reader()
        (book, unanswered), known = rules().book_or(lake.book, fresh=sent is not None)
        versions = versions_of(book, rule_id)
        rows = [row for row in listed(book, unanswered, every=True) if row["rule_id"] == rule_id]
        befores = [None, *versions]
        listing = [
            (
                row,
                yaml_text(version.rule, provenance=False),
                changed_lines(before, version.rule, f"version {version.version}"),
            )
            for row, version, before in zip(rows, versions, befores, strict=False)
        ]
        labelled = {each.rule_version: each for each in lake.precision() if each.rule_id == rule_id}
        return rendering.page(
            request,
            "rule.html",
            rule_id=rule_id,
            versions=listing[::-1],
            labelled=labelled,
            labelled_days=PRECISION_DAYS,
            proposal=_proposal(rules(), book, versions[-1], acting) if versions[-1].waits_for_approval else None,
            sent=sent,
            became=None if sent is None else next((row for row in rows if row["rule_version"] == sent), None),
            acting=acting,
            known=known,
            snoozes=shown(lake.snoozes().of_rule(rule_id), lambda each: group_of(each, book, lake)),
        )

    @app.post("/rules/{rule_id}/approve", dependencies=[guard])
    async def approve(request: Request, rule_id: str, acting: Acting = actor) -> Response:
        return await decided(request, rule_id, acting, rules().approve)

    @app.post("/rules/{rule_id}/decline", dependencies=[guard])
    async def decline(request: Request, rule_id: str, acting: Acting = actor) -> Response:
        return await decided(request, rule_id, acting, rules().decline)

    async def decided(
        request: Request, rule_id: str, acting: Acting, decide: Callable[[str, int, str, str], None]
    ) -> Response:
        who, form = await acted(request, acting)
        number, reason = version_of(form, "version"), reason_of(form, MAX_REASON)
        if number is None:
            where, remedy = repr(form.get("version", "")[:20]), "Open the page of the rule again"
            raise SettingsError("is no version", where=where, remedy=remedy)
        await run_in_threadpool(lambda: decide(rule_id, number, who, reason))
        there = f"../{quote(rule_id, safe='')}?sent={number}"
        return see_other(there)

    @app.get("/rules/{rule_id}/approve", dependencies=[guard])
    @app.get("/rules/{rule_id}/decline", dependencies=[guard])
    def back(rule_id: str) -> RedirectResponse:
        """Where a login leads whose session had ended before the form was sent."""
        return see_other(f"../{quote(rule_id, safe='')}")


def versions_of(book: RuleBook, rule_id: str) -> Sequence[RuleVersion]:
    """The versions of a rule that was published.

    Raises:
        HTTPException: 404, it never was.
    """
    versions = book.of_rule(rule_id)
    if not versions:
        remedy = rule_meant(rule_id, [*book.rule_ids])
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"Rule {rule_id} was never published. {remedy}.")
    return versions


def _proposal(rules: RuleReader, book: RuleBook, version: RuleVersion, acting: Acting) -> Proposal:
    """A version that waits, as the user sees it."""
    rule_id, before = version.rule.id, in_force(book, version.rule.id)
    lines = changed_lines(before, version.rule, f"version {version.version}")
    if acting.name is None:
        return Proposal(version, before, lines, [], "")
    try:
        prepared = approving(rules.settings, book, rule_id, version.version, author=acting.name, reason="to be given")
    except NightjarError as refusal:
        return Proposal(version, before, lines, [], str(refusal))
    notices = past_notices(rules.settings, rules.streams, book, [prepared.message], Stages())
    return Proposal(version, before, lines, [*notices], "")
