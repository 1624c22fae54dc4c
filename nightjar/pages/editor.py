"""The page that writes a rule: its text, everything that is wrong with it, what it changes of the live version, what it
would have found, and the form that publishes it.

What it does not do: check, compare or decide. Texts are checked by the function of `nightjar rules check`
(operations/rule_check.py), whose words the page shows, compared as by `nightjar rules publish --dry-run`, and published
as by that command, with the user of the request as the author. What the browser completes is in the JSON Schema of
rules and in the declared streams.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import FastAPI, HTTPException, Query, Request, Response, status
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, JSONResponse

from nightjar.kafka.clients import KafkaError
from nightjar.operations.retention import Estimate
from nightjar.operations.rule_check import check_text
from nightjar.operations.rule_publishing import in_force
from nightjar.pages.acting import Acting, acted, reason_of, version_of
from nightjar.pages.backtests import Backtests, asked_of
from nightjar.pages.bounded import Bounded
from nightjar.pages.entity_reader import newest_event_day
from nightjar.pages.lake_reader import LakeReader
from nightjar.pages.rendering import HEADERS, Rendering, see_other
from nightjar.pages.rule_pages import versions_of
from nightjar.pages.rule_reader import RuleReader, newest_version
from nightjar.pages.simple_rule import FUNCTIONS, OPERATORS, AskedRule
from nightjar.pages.trying import MOST_EVENTS, Tried, tried
from nightjar.rules.display import changed_lines, yaml_text
from nightjar.rules.errors import NightjarError, Problem, SettingsError, problems_of
from nightjar.rules.model import MAX_REASON, Rule
from nightjar.rules.problem_lines import lines_of
from nightjar.rules.streams import Stream, tables_of
from nightjar.rules.versions import RuleVersion
from nightjar.rules.written_schema import rule_parts

# Characters of the rules, whose check then takes less than a second, and bytes of the form as browsers encode it.
LONGEST, _LONGEST_FORM = 32_768, 131_072
_TOO_LONG = "The rules are too long for a page: `nightjar rules check` takes them."
# Checks at one time in a process, and how long somebody waits for one, seconds.
_CHECKS, _CHECK_SECONDS = 2, 15.0
# How long somebody waits for a trial, seconds: the first one of an installation may have the engine compiled.
_TRIAL_SECONDS = 50.0
# Days of a backtest where nobody gives others.
_BACKTEST_DAYS = 7
# Of each rule, beside the count.
_EXAMPLES = 10


@dataclass(frozen=True)
class Note:
    """An error or a warning. line: of the text, from 1; text: as `nightjar rules check` prints it."""

    line: int
    text: str
    excerpt: str

    @classmethod
    def of(cls, text: str, problems: list[Problem]) -> list[Note]:
        """The problems of the text, in the order of its lines."""
        every = zip(lines_of(text.encode("utf-8", "replace"), problems), map(str, problems), strict=True)
        last = len(text.splitlines())  # YAML that ends too early is wrong behind it
        parts = ((max(1, min(line, last)), shown.partition("\n")) for line, shown in every)
        return sorted((cls(line, first, rest) for line, (first, _, rest) in parts), key=lambda note: note.line)


@dataclass(frozen=True)
class Change:
    """A rule beside its version in force. lines: of the diff; empty where nothing differs."""

    rule: Rule
    before: RuleVersion | None
    lines: list[str]
    proposed: RuleVersion | None
    """The version that waits for approval, which publishing this one overtakes."""


@dataclass(frozen=True)
class Findings:
    """What a check has found. known: whether the changes are to what is on the topics, and not to what is archived.

    refusal: why the text was not published, empty if nobody asked for that.
    """

    errors: list[Note] = field(default_factory=list)
    warnings: list[Note] = field(default_factory=list)
    costs: Mapping[str, Estimate] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    known: bool = True
    refusal: str = ""


@dataclass(frozen=True)
class Edited:
    """What somebody writes. rule_id: whose page it is, empty on that of a new rule; seen: its newest version then;
    first, last, threshold: of a backtest."""

    text: str
    rule_id: str = ""
    seen: int = 0
    reason: str = ""
    first: str = ""
    last: str = ""
    threshold: str = ""

    @classmethod
    def of(cls, form: dict[str, str]) -> Edited:
        """What a form has."""
        text = form.get("text", "").replace("\r\n", "\n")
        days = {name: form.get(name, "") for name in ("first", "last", "threshold")}
        return cls(text, form.get("rule", ""), version_of(form, "seen") or 0, form.get("reason", ""), **days)

    def with_days(self, last: date) -> Edited:
        """The same, for a backtest of the days up to this one."""
        return replace(self, first=f"{last - timedelta(days=_BACKTEST_DAYS - 1)}", last=f"{last}")


def add_editor(
    app: FastAPI,
    rendering: Rendering,
    reader: Callable[[], LakeReader],
    rules: Callable[[], RuleReader],
    *,
    backtests: Callable[[], Backtests],
    guard: Any,
    actor: Any,
) -> None:
    """Add the pages, and the address that takes their form."""
    checks, trials = Bounded(_CHECKS, _CHECK_SECONDS), Bounded(1, _TRIAL_SECONDS)

    def dated(edited: Edited) -> Edited:
        return edited.with_days(newest_event_day(reader(), rules().streams.values()))

    async def found_in(text: str) -> Findings:
        return await checks.run(lambda: findings(text, rules(), reader()))

    async def tried_on(found: Findings) -> Tried:
        if found.errors:
            return Tried(failure="It is evaluated once it has no error.")
        try:
            return await trials.run(lambda: tried([change.rule for change in found.changes], rules(), reader()))
        except HTTPException as late:
            return Tried(failure=str(late.detail))

    def page(
        request: Request, acting: Acting, edited: Edited, found: Findings, *, code: int = 200, came: Tried | None = None
    ) -> HTMLResponse:
        return rendering.page(
            request,
            "rule_edit.html",
            code,
            edited=edited,
            found=found,
            came=came,
            acting=acting,
            longest=LONGEST,
            longest_reason=MAX_REASON,
            most_events=MOST_EVENTS,
            approvals=rules().settings.approvals,
            examples=_EXAMPLES,
            streams=rules().streams,
            functions=FUNCTIONS,
            operators=OPERATORS,
        )

    @app.get("/edit", dependencies=[guard])
    async def new(request: Request, asked: Annotated[AskedRule, Query()], acting: Acting = actor) -> HTMLResponse:
        acting.refuse_onlookers()
        edited = await run_in_threadpool(lambda: dated(Edited(asked.text or example(rules().streams))))
        return page(request, acting, edited, await found_in(edited.text))

    @app.get("/rules/{rule_id}/edit", dependencies=[guard])
    async def edit(request: Request, rule_id: str, version: int | None = None, acting: Acting = actor) -> HTMLResponse:
        acting.refuse_onlookers()
        edited = await run_in_threadpool(lambda: dated(_written(rule_id, version, rules(), reader())))
        return page(request, acting, edited, await found_in(edited.text))

    @app.post("/edit", dependencies=[guard])
    async def take(request: Request, acting: Acting = actor) -> Response:
        who, form = await acted(request, acting, _LONGEST_FORM, _TOO_LONG)
        edited = Edited.of(form)
        if len(edited.text) > LONGEST:
            raise HTTPException(status.HTTP_413_CONTENT_TOO_LARGE, _TOO_LONG)
        found = await found_in(edited.text)
        match form.get("act"):
            case "try":
                return page(request, acting, edited, found, came=await tried_on(found))
            case "backtest" if not found.errors:
                return await backtest(request, acting, edited, found, form)
            case "publish" if not found.errors:
                return await publish(request, acting, edited, found, who)
            case _:
                return page(request, acting, edited, found)

    async def backtest(
        request: Request, acting: Acting, edited: Edited, found: Findings, form: dict[str, str]
    ) -> Response:
        """Start one, and lead to its page; the text is shown again where that cannot be."""
        try:
            asked = asked_of(form, edited.text, [change.rule for change in found.changes], rules().streams)
            run = await backtests().start(request, asked)
        except NightjarError as refusal:
            return page(request, acting, edited, replace(found, refusal=str(refusal)), code=400)
        except HTTPException as refusal:
            why = str(refusal.detail).removesuffix(".")
            return page(request, acting, edited, replace(found, refusal=why), code=refusal.status_code)
        there = f"backtests/{quote(run, safe='')}"
        return see_other(there)

    async def publish(request: Request, acting: Acting, edited: Edited, found: Findings, who: str) -> Response:
        """Send the version, and lead to the page of its rule; the text is shown again where that cannot be."""
        try:
            rule = _only(found)
            seen = edited.seen if rule.id == edited.rule_id else 0
            reason = reason_of({"reason": edited.reason}, MAX_REASON)
            made = await run_in_threadpool(lambda: rules().publish(rule, who, reason, seen))
        except NightjarError as refusal:
            is_theirs = not isinstance(refusal, KafkaError)
            code = status.HTTP_400_BAD_REQUEST if is_theirs else status.HTTP_503_SERVICE_UNAVAILABLE
            return page(request, acting, edited, replace(found, refusal=str(refusal)), code=code)
        if made is None:
            (book, _), _ = await run_in_threadpool(lambda: rules().book_or(reader().book))
            newest = newest_version(book, rule.id)
            again = replace(edited, rule_id=rule.id, seen=newest)
            why = f"Nothing was sent: you have not seen version {newest} of {rule.id}. The differences are to the rules"
            why = f"{why} as they are now; publish again if that is what you want"
            fresh = replace(await found_in(edited.text), refusal=why)
            return page(request, acting, again, fresh, code=status.HTTP_409_CONFLICT)
        there = f"rules/{quote(rule.id, safe='')}?sent={made}"
        return see_other(there)

    @app.get("/edit/names", dependencies=[guard])
    def names() -> JSONResponse:
        """What an editor completes: the schema of a rule, and what the streams declare."""
        (book, _), _ = rules().book_or(reader().book)
        return JSONResponse(completed(rules().streams, book.rule_ids), headers=HEADERS)


def findings(text: str, rules: RuleReader, lake: LakeReader) -> Findings:
    """What `nightjar rules check` says of the text, and what publishing it would change."""
    try:
        checked = check_text(rules.settings, rules.streams, text, lake.rates(), where="the text")
    except NightjarError as refusal:
        return Findings(errors=Note.of(text, problems_of(refusal)))
    (book, _), known = rules.book_or(lake.book)
    changes = []
    for rule in checked.rules:
        before, versions = in_force(book, rule.id), book.of_rule(rule.id)
        changes.append(
            Change(
                rule,
                before,
                changed_lines(before, rule, "as written here"),
                versions[-1] if versions and versions[-1].waits_for_approval else None,
            )
        )
    return Findings(warnings=Note.of(text, checked.warnings), costs=checked.costs, changes=changes, known=known)


def _written(rule_id: str, number: int | None, rules: RuleReader, lake: LakeReader) -> Edited:
    """A version of a rule as somebody edits it. number: None for the newest."""
    (book, _), _ = rules.book_or(lake.book)
    versions = versions_of(book, rule_id)
    newest = versions[-1].version
    found = next((each for each in versions if each.version == (newest if number is None else number)), None)
    if found is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"Rule {rule_id} has no version {number}: {newest} is the last.")
    return Edited(yaml_text(found.rule, provenance=False), rule_id, newest)


def _only(found: Findings) -> Rule:
    """The rule that is published.

    Raises:
        SettingsError: the text has several.
    """
    if len(found.changes) != 1:
        remedy = "Publish each by itself here, or all by `nightjar rules publish`"
        raise SettingsError(f"has {len(found.changes)} rules", where="the text", remedy=remedy)
    return found.changes[0].rule


def example(streams: Mapping[str, Stream]) -> str:
    """A rule to begin with, on the first declared stream."""
    stream = next(iter(streams.values()))
    return f"""id: many-{stream.name}
stream: {stream.name}
group_by: [{", ".join(stream.entities[:1])}]
measures:
  n: {{count: "*", over: 1h}}
when: n > 10
severity: medium
description: "{{n}} {stream.name} within an hour"
"""


def completed(streams: Mapping[str, Stream], rule_ids: Any) -> dict[str, Any]:
    """The parts of a rule's schema by their names, what the streams and tables declare, and the rules."""
    return {
        "parts": rule_parts(),
        "streams": {
            name: {"fields": {each: str(kind) for each, kind in stream.fields.items()}, "tables": [*stream.tables]}
            for name, stream in streams.items()
        },
        "tables": {name: str(kind) for name, kind in tables_of(streams).items()},
        "rules": sorted(rule_ids),
    }
