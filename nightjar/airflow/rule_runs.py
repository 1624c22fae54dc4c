"""What the tasks of the DAG `rule_backtest` do: try drafts of rules on past days, and publish them once approved.

How it works: the form's values become a RuleRequest, checked again here. The backtest is the command `nightjar
backtest` in a process of its own, with a list of arguments; its figures become the text that the approving person is
shown, in which nothing that somebody wrote is markup. Publishing sends the drafts by the name of whoever started the
run, and the approval by the name of whoever answered.

What it does not do: authenticate anybody. Both names are those that Airflow has authenticated.
"""

import re
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Any

from nightjar.airflow.addresses import backtest_address
from nightjar.airflow.forms import Problems
from nightjar.airflow.submission import APPROVAL_REASON, FormError, SubmissionError, day_of
from nightjar.configuration.settings import Settings, load_settings
from nightjar.contracts.rule_messages import approval_message, rule_message
from nightjar.contracts.rule_status import ShownStatus
from nightjar.kafka import rule_topics
from nightjar.operations.backtest_run import REPORT, run_backtest
from nightjar.rules.approval import same_person
from nightjar.rules.documents import MAX_BYTES
from nightjar.rules.errors import printable
from nightjar.rules.model import MAX_REASON, Rule, parse_rule, parse_rules
from nightjar.rules.names import IDENTIFIER
from nightjar.rules.publishing import Answer, judge
from nightjar.rules.rulebook import RuleBook
from nightjar.rules.streams import Stream, load_streams
from nightjar.rules.thresholds import threshold_of
from nightjar.rules.versions import latest

# The job answers within a second, and adds a shuffle key within a minute or two.
ANSWER_SECONDS = 300.0
_FIGURES = ("alerts", "a day", "live alerts", "gained", "lost", "changed")


@dataclass(frozen=True)
class RuleRequest:
    """What somebody entered in the form of `rule_backtest`."""

    text: str
    """The drafts as YAML or JSON."""
    first: date
    last: date
    """`first` and `last`: days (UTC)."""
    threshold: str | None
    """As `--threshold` of `nightjar backtest`."""
    reason: str


@dataclass(frozen=True)
class People:
    """Who started the run and who approved it, and both reasons."""

    author: str
    reason: str
    approver: str
    approval_reason: str


def request_of(params: Mapping[str, Any], now: datetime | None = None) -> RuleRequest:
    """The request of a form: `rules`, `first`, `last`, `threshold` (text or None), `reason`. now: the time (None: now).

    Raises:
        FormError: with all values that cannot be used, and all problems of the rules.
    """
    streams, problems = load_streams(load_settings().streams), Problems()
    text, reason, threshold = params.get("rules"), params.get("reason"), params.get("threshold") or None
    rules: list[Rule] = []
    if not isinstance(text, str) or not text.strip() or len(text.encode("utf-8", "replace")) > MAX_BYTES:
        problems.add("is not a text of rules", where="rules", remedy="Paste the rules as YAML or JSON")
    else:
        rules = problems.tried(lambda: parse_rules(text, streams, where="rules")) or []
    if threshold is not None and not (isinstance(threshold, str) and re.fullmatch(IDENTIFIER, threshold)):
        problems.add("is not a name", where=f"threshold {threshold!r:.100}", remedy="Name a measure or a field")
    elif threshold is not None:
        for rule in rules:
            problems.tried(partial(threshold_of, rule, streams[rule.stream], threshold))
    first, last = (problems.tried(partial(day_of, name, params.get(name))) for name in ("first", "last"))
    if first is not None and last is not None:
        today = (now or datetime.now(UTC)).astimezone(UTC).date()
        if first > today:
            problems.add("is in the future", where=f"first {first}", remedy=f"Today is {today} (UTC)")
        if first > last:
            problems.add(f"is after the last day, {last}", where=f"first {first}", remedy="Exchange the two")
    if not isinstance(reason, str) or not reason.strip() or not reason.isprintable() or len(reason) > MAX_REASON:
        problems.add("is not a line of text", where="reason", remedy=f"Write at most {MAX_REASON} characters")
    if problems.found or first is None or last is None:
        raise FormError(problems.found)
    return RuleRequest(str(text), first, last, threshold, str(reason))


def backtest(request: RuleRequest, folder: Path, log: Callable[[str], object], cleanup: ExitStack) -> str:
    """Run the backtest; return what the approving person is shown, as Markdown.

    folder: where the drafts and the report are left, under the run's name. cleanup: ends the command when it is closed.

    Raises:
        BacktestError: the command failed; its log has the reason.
    """
    settings = load_settings()
    streams = load_streams(settings.streams)
    rules = parse_rules(request.text, streams, where="rules")
    found = run_backtest(
        folder,
        request.text,
        rules,
        (request.first, request.last),
        threshold=request.threshold,
        reason=request.reason,
        lake=settings.lake,
        log=log,
        cleanup=cleanup,
    )
    address = backtest_address(folder.name)
    shown = f"[Report with plots and examples]({address})" if address else f"Report: {_code(str(folder / REPORT))}"
    details = [f"Reason: {_code(request.reason)}", shown]
    book, _ = rule_topics.expected_book(settings, streams)
    past = past_effects(settings, streams, rules, book)
    return "\n\n".join([*past, _table(found), *_changes(book, rules), *details])


def _table(found: list[dict[str, Any]]) -> str:
    days = len(found[0]["days"])
    lines = [f"| rule | {' | '.join(_FIGURES)} |", f"| --- |{' ---: |' * len(_FIGURES)}"]
    for each in found:
        change = each["change"]
        compared = ["", "", "", ""]
        if change is not None:
            compared = [f"{change[name]:,}" for name in ("live_alerts", "gained", "lost", "changed")]
        cells = [f"{each['alerts']:,}", f"{each['alerts'] / days:,.1f}", *compared]
        lines.append(f"| {each['rule_id']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def past_effects(settings: Settings, streams: Mapping[str, Stream], rules: list[Rule], book: RuleBook) -> list[str]:
    """A line for each draft with an effective time of its own: what publishing it changes of the past."""
    from nightjar.operations.past_effect import past_effect

    lines, now = [], time.time_ns() // 1000
    for rule in rules:
        made, _ = judge(book, rule_message(rule), now, streams, settings.activation_delay, forms=settings.forms)
        if rule.effective is None or made is None:
            continue
        stated = f"{rule.id} applies from {rule.effective:%Y-%m-%d %H:%M} UTC on"
        if settings.approvals:
            # S5.5
            lines.append(f"{stated}, or from its approval on if that is later: it changes no earlier alert.")
        elif effect := past_effect(settings.lake, streams, book, made, now, pending_days=settings.pending_days):
            lines.append(f"**It changes the past:** {effect}.")
        else:
            lines.append(f"{stated}: if it is approved later than that, it changes the alerts since then.")
    return lines


def _changes(book: RuleBook, rules: list[Rule]) -> list[str]:
    """How each draft differs from what is published, as a block of code."""
    from nightjar.rules.display import changed_lines

    blocks = []
    for rule in rules:
        in_force = [version for version in book.of_rule(rule.id) if not version.is_proposed]
        text = "\n".join(map(printable, changed_lines(in_force[-1] if in_force else None, rule, "this draft")))
        fence = _fence(text, 3)
        blocks.append(f"{fence}diff\n{text or f' {rule.id} is published like this'}\n{fence}")
    return blocks


def _code(text: str) -> str:
    """A line of text that Markdown shows as it is."""
    fence = _fence(text, 1)
    return f"{fence} {printable(text)} {fence}"


def _fence(text: str, least: int) -> str:
    """More backticks than stand side by side in a text."""
    return "`" * max(least, 1 + max(map(len, re.findall("`+", text)), default=0))


def people_of(author: str | None, reason: str, answer: Mapping[str, Any]) -> People:
    """author: who started the run; answer: what the approval step returned.

    Raises:
        SubmissionError: Airflow does not know one of the two, or they are one person where approvals are required.
    """
    responder = answer.get("responded_by_user") or {}
    approver, given = responder.get("name") or responder.get("id"), answer.get("params_input") or {}
    if not author:
        raise SubmissionError("nobody started the run", remedy="Trigger it from the form, logged in")
    if not approver:
        raise SubmissionError("nobody approved it", remedy="Answer the approval step, logged in")
    approval_reason = str(given.get(APPROVAL_REASON) or "").strip()
    if not approval_reason:
        raise SubmissionError(
            "was approved without a reason", where="the approval", remedy="Clear the approval step, and answer it again"
        )
    if load_settings().approvals and same_person(author, str(approver)):
        raise SubmissionError(
            f"{author} started the run and approved it, and nobody approves a version of their own",
            remedy="Clear the approval step, and ask somebody else to answer it",
        )
    return People(author, reason, str(approver), approval_reason)


def publish(request: RuleRequest, people: People, log: Callable[[str], object]) -> None:
    """Publish the drafts that are new or changed, approve those that wait for it, and wait until all are in force.

    May be repeated: what is published or approved already is not sent again.

    Raises:
        SubmissionError: the job rejected a message. KafkaError: it did not answer.
    """
    settings = load_settings()
    streams = load_streams(settings.streams)
    drafts = [rule_message(rule) for rule in parse_rules(request.text, streams, where="rules")]
    book, _ = rule_topics.expected_book(settings, streams)
    messages, waiting = [], []
    for draft in drafts:
        rule = parse_rule(draft | {"author": people.author, "reason": people.reason}, streams)
        last = latest(book.of_rule(rule.id))
        if last is None or last.rule != rule:
            messages.append(rule_message(rule))
        elif last.is_proposed:
            waiting.append((rule.id, last.version))
        else:
            log(f"{rule.id} is published already: it is version {last.version}")
    states = {draft["id"]: parse_rule(draft, streams).state for draft in drafts}
    with rule_topics.AnswerReader(settings) as answers:
        rule_topics.send(settings, messages)
        for status in answers.until_settled(messages, ANSWER_SECONDS):
            _take(status, log)
            if status.answer is Answer.PROPOSED:
                waiting.append((str(status.rule_id), int(status.version or 0)))
        for rule_id, version in waiting:
            approval = approval_message(rule_id, version, people.approver, people.approval_reason)
            rule_topics.send(settings, [approval])
            for status in answers.until_settled([approval], ANSWER_SECONDS, states[rule_id]):
                _take(status, log)


def _take(status: ShownStatus, log: Callable[[str], object]) -> None:
    reasons = "; ".join(printable(reason) for reason in status.reasons)
    log(f"{status.rule_id} version {status.version}: {status.answer} {reasons}".strip())
    if status.answer is Answer.REJECTED:
        raise SubmissionError(reasons, where=str(status.rule_id), remedy="Nothing of it takes effect")
