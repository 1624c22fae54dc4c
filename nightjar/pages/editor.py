"""The page that writes a rule: its text, everything that is wrong with it, and what it changes of the live version.

What it does not do: check or compare. Texts are checked by the function of `nightjar rules check`
(operations/rule_check.py), whose words the page shows, and compared as by `nightjar rules publish --dry-run`. What the
browser completes is in the JSON Schema of rules and in the declared streams.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fastapi import FastAPI, HTTPException, Request, Response, status
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, JSONResponse

from nightjar.operations.retention import Estimate
from nightjar.operations.rule_check import check_text
from nightjar.operations.rule_publishing import in_force
from nightjar.pages.acting import Acting, acted
from nightjar.pages.lake_reader import LakeReader
from nightjar.pages.rendering import HEADERS, Rendering
from nightjar.pages.rule_reader import RuleReader
from nightjar.rules.display import changed_lines, yaml_text
from nightjar.rules.errors import NightjarError, Problem, problems_of
from nightjar.rules.model import Rule
from nightjar.rules.names import rule_meant
from nightjar.rules.problem_lines import lines_of
from nightjar.rules.streams import Stream, tables_of
from nightjar.rules.versions import RuleVersion
from nightjar.rules.written_schema import rule_parts

# Characters of the rules, whose check then takes less than a second, and bytes of the form as browsers encode it.
LONGEST, _LONGEST_FORM = 32_768, 131_072
_TOO_LONG = "The rules are too long for a page: `nightjar rules check` takes them."
# Checks at one time in a process, and how long somebody waits for one, seconds.
_CHECKS, _CHECK_SECONDS = 2, 15.0

Found = TypeVar("Found")


class Bounded:
    """Runs what takes time outside of the event loop. workers: how many at one time; seconds: how long each may take,
    with its wait for its turn. What takes longer is no longer waited for, and keeps its worker until it ends."""

    def __init__(self, workers: int, seconds: float) -> None:
        self._pool, self._seconds = ThreadPoolExecutor(workers, "nightjar-page"), seconds

    async def run(self, work: Callable[[], Found]) -> Found:
        """What it returns.

        Raises:
            HTTPException: 503, it takes too long.
        """
        running = asyncio.get_running_loop().run_in_executor(self._pool, work)
        try:
            return await asyncio.wait_for(running, self._seconds)
        except TimeoutError:
            why = f"It has taken more than {self._seconds:.0f} seconds, or others were first: try it again."
            raise HTTPException(status.HTTP_503_SERVICE_UNAVAILABLE, why) from None


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
    """What a check has found. known: whether the changes are to what is on the topics, and not to what is archived."""

    errors: list[Note] = field(default_factory=list)
    warnings: list[Note] = field(default_factory=list)
    costs: Mapping[str, Estimate] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    known: bool = True


def add_editor(
    app: FastAPI,
    rendering: Rendering,
    reader: Callable[[], LakeReader],
    rules: Callable[[], RuleReader],
    *,
    guard: Any,
    actor: Any,
) -> None:
    """Add the pages, and the address that takes their form."""
    checks = Bounded(_CHECKS, _CHECK_SECONDS)

    def found_in(text: str) -> Findings:
        return findings(text, rules(), reader())

    def page(request: Request, acting: Acting, text: str, found: Findings, rule_id: str) -> HTMLResponse:
        return rendering.page(
            request, "rule_edit.html", text=text, found=found, rule_id=rule_id, acting=acting, longest=LONGEST
        )

    @app.get("/edit", dependencies=[guard])
    async def new(request: Request, acting: Acting = actor) -> HTMLResponse:
        acting.refuse_onlookers()
        text = await run_in_threadpool(lambda: example(rules().streams))
        return page(request, acting, text, await checks.run(lambda: found_in(text)), "")

    @app.get("/rules/{rule_id}/edit", dependencies=[guard])
    async def edit(request: Request, rule_id: str, acting: Acting = actor) -> HTMLResponse:
        acting.refuse_onlookers()
        text = await run_in_threadpool(lambda: _newest(rule_id, rules(), reader()))
        return page(request, acting, text, await checks.run(lambda: found_in(text)), rule_id)

    @app.post("/edit", dependencies=[guard])
    async def check(request: Request, acting: Acting = actor) -> Response:
        _, form = await acted(request, acting, _LONGEST_FORM, _TOO_LONG)
        text = form.get("text", "").replace("\r\n", "\n")
        if len(text) > LONGEST:
            raise HTTPException(status.HTTP_413_CONTENT_TOO_LARGE, _TOO_LONG)
        return page(request, acting, text, await checks.run(lambda: found_in(text)), form.get("rule", ""))

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
                versions[-1] if versions and versions[-1].is_proposed else None,
            )
        )
    return Findings(warnings=Note.of(text, checked.warnings), costs=checked.costs, changes=changes, known=known)


def _newest(rule_id: str, rules: RuleReader, lake: LakeReader) -> str:
    """The text of a rule's newest version."""
    (book, _), _ = rules.book_or(lake.book)
    versions = book.of_rule(rule_id)
    if not versions:
        remedy = rule_meant(rule_id, [*book.rule_ids])
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"Rule {rule_id} was never published. {remedy}.")
    return yaml_text(versions[-1].rule, provenance=False)


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
