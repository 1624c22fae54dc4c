"""Tables of every command, at the widths that terminals have: no value is cut, no column is a letter wide."""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import polars as pl
import pytest

from nightjar.backfill.backtest.comparison import BacktestResult, Change, Curve, Overlap, Point, Quality
from nightjar.backfill.config import RunRequest
from nightjar.backfill.erasure.forgetting import Removal
from nightjar.backfill.erasure.remains import InTopic, Remains
from nightjar.backfill.erasure.rows import Erased
from nightjar.backfill.publish.precision import Precision
from nightjar.backfill.publish.snoozed import Snoozed
from nightjar.backfill.run import Ended
from nightjar.catalogue import catalogue
from nightjar.cli.commands import (
    alert_notifications,
    backfill,
    backtest,
    explain,
    generate,
    lake,
    rules_catalogue,
    rules_list,
    status,
    topics,
)
from nightjar.configuration.settings import load_settings
from nightjar.contracts.snoozes import SNOOZE, Snoozes, message, snooze_record
from nightjar.generate import Scenario
from nightjar.kafka.acls import topic_access
from nightjar.lake.maintenance import Maintained
from nightjar.notifications.outbox import GivenUp
from nightjar.operations.status import JobStatus
from nightjar.replay.sending import Report
from nightjar.rules.model import parse_rule
from nightjar.rules.rulebook import RuleBook
from nightjar.rules.streams import load_streams
from nightjar.terminal.console import SafeConsole, lines, result_console
from nightjar.terminal.tables import RecordTable, number, prose

WIDTHS = (60, 80, 120)
DAY = date(2026, 11, 20)
AT = datetime(2026, 11, 20, 7, 23, 12, 345678, tzinfo=UTC)
REASON = "stolen cards are tried with small amounts before large ones, see ticket FRAUD-1234"


def rules() -> None:
    """Rules in every state, as people write them."""
    common = {"rule": {"stream": "transactions", "group_by": ["customer_id", "terminal_id"], "severity": "critical"}}
    row = common | {"rule_id": "terminal-compromised", "rule_version": 12, "state": "active", "status": "SUPERSEDED"}
    row |= {"applies_from": "2026-11-20T07:23:12Z\nuntil 2026-11-21T00:00:00Z", "author": "ann.smith", "reason": REASON}
    row |= {"published": "2026-11-20T07:23:12.000000Z", "approved": "2026-11-20T08:00:00.000000Z"}
    row |= {"approver": "bob", "approval_reason": "three alerts a day", "declined_by": None}
    waits = {"status": "PROPOSED", "applies_from": "waiting for approval", "approver": None, "approved": None}
    waits |= {"approval_reason": None}
    declined = {"status": "DECLINED", "applies_from": "never: declined", "declined_by": "bob"}
    declined |= {"declined": "2026-11-20T08:00:00.000000Z", "decline_reason": "a thousand alerts a day"}
    result_console().print(rules_list._table([row, row | waits, row | waits | declined]))


def given_up() -> None:
    """Messages that a target has refused."""
    reason = "it answers 422 the ticket has no customer, and customers are needed since the last release"
    each = GivenUp("fraud-desk", "9f0c2f6f6a4e4a0c8d1f4f6f0c5f8a11", 1_767_607_203_500_000, 2, 6, 1_998, reason)
    result_console().print(alert_notifications.undelivered_table([each]))


def entries() -> None:
    """The catalogue."""
    result_console().print(rules_catalogue._table(catalogue()))


def nights() -> None:
    """A night with all it counts, and one that was rejected."""
    causes = {"late_event": 1_234, "rule_propagation": 72, "duplicate_conflict": 1}
    outcomes = dict.fromkeys(("matched", "missed", "revised", "retracted"), 123_456)
    counts = {"causes": causes, "outcomes": outcomes, "violations": 1_234_567, "muted": 12_345, "overflow": 12}
    counts |= {"corrections": 1_307, "held_back": 0, "published": 1_307}
    shadow = {"rule_id": "terminal-compromised-2", "rule_version": 1, "live_rule_id": "terminal-compromised"}
    shadow |= {"live_version": 12, "alerts": 12_345, "live_alerts": 23_456, "gained": 1, "lost": 9, "changed": 0}
    ended = [Ended(RunRequest("r", DAY), counts | {"shadows": [shadow]}), Ended(RunRequest("s", DAY))]
    result_console().print(backfill._table(ended, dry_run=False))
    result_console().print(backfill._shadow_table(ended))
    known = Precision("terminal-compromised", 12, 1_234, 12_345, 7)
    result_console().print(backfill._precision_table([known.as_dict()]))
    said = {"author": "kim", "reason": "the shop tests its terminals until the new release is there", "now": 0}
    record = snooze_record(rule_id="terminal-compromised", group='{"terminal_id":"m1"}', since=0, until=10**9, **said)
    snoozed = [Snoozed(each, "terminal-compromised", 12_345).as_dict() for each in (record["snooze_id"], "0" * 32)]
    ended = [Ended(RunRequest("r", DAY), {"snoozed": snoozed})]
    known = Snoozes([row for row in [SNOOZE.row(message(record)[1])] if row is not None])
    result_console().print(backfill._snoozed_table(known, RuleBook({}), {}, ended))


def backtests() -> None:
    """A draft beside its live version, with labels, groups, other rules and thresholds."""
    change = Change(12, 12_345, [12_345], 10_000, 2_345, 345, 45, [], [])
    points = [Point(1234.5678, 9, None), Point(876.5, 19, None)]
    curve = Curve("spent", ">", 500.0, points, {10: points[0], 20: points[1]})
    written = {"stream": "transactions", "group_by": ["customer_id"], "when": "amount > 500"}
    rule = parse_rule({"id": "terminal-compromised", **written}, load_streams())
    found = BacktestResult(
        rule,
        None,
        [DAY],
        12_345,
        [12_345],
        1_234,
        [('{"customer_id": "C000000123"}', 1_234)],
        [Overlap("card-velocity-of-a-day", 12_345, 1_234)],
        change,
        Quality(1_000, 900, 12_345, {}),
        curve,
        [],
    )
    for table in [backtest._table([found]), *backtest._details(found)]:
        result_console().print(table)


def job() -> None:
    """A job with two streams."""
    lag: Any = {name: {"events": 1_234_567, "seconds": 12_345.6} for name in ("transactions", "logins")}
    counts = {name: dict.fromkeys(("events", "late", "duplicates", "announced", "overflow"), 1_234_567) for name in lag}
    last: Any = {"process": "host-1", "state": "running", "lag": lag}
    rule = {"version": 1, "stream": "transactions", "state": "active"}
    found = JobStatus(running=True, heartbeat_seconds=1.0, last=last, counts=counts, rules={"burst": rule})
    status._show(result_console(), found)


def upkeep() -> None:
    """What was done to tables, and what was erased of a person."""
    result_console().print(
        lake._maintained([Maintained("events_transactions", 12_345, 123, 123_456_789_012, 1_234_567, 12_222)])
    )
    removal = Removal((Erased("events_transactions", 12_345, 0), Erased("reconciliation", 12, 3)), (), 1)
    remains = Remains((InTopic("transactions-quarantine", AT, 12_345), InTopic("alerts", None, 0)), "", {})
    lake._show(result_console(), removal, remains, erased=True)


def topic_list() -> None:
    """Every topic."""
    table = topics._table(topic_access(load_settings(), list(load_streams().values())))
    result_console().print(table)


def an_alert() -> None:
    """Its window, revisions and outcomes."""
    event = {"transaction_id": "t1234567", "event_time": AT, "customer_id": "C000000123", "terminal_id": "T0001234"}
    window = pl.DataFrame([event | {"amount": "1234.56", "arrival_time": AT, "": "late"}])
    result_console().print(explain._table(window, "the group's events"))
    revision = {"revision": 1, "kind": "retraction", "muted": False, "source": "backfill", "cause": "rule_propagation"}
    measures = '{"payments": 12, "spent": 1234.56, "usual": 12.5}'
    revisions = pl.DataFrame([revision | {"emitted_at": AT, "measures": measures, "text": REASON}])
    result_console().print(explain._table(revisions, "revisions"))


def simulated() -> None:
    """Files of simulated events, and what was sent of them."""
    counts = dict.fromkeys(Scenario, 1_234)
    file = "/home/somebody/a-folder-with-a-long-name/simulated/2026-11-20/transactions.parquet"
    result_console().print(generate._table({"transactions": {"file": file, "events": 1_234_567, **counts}}, "seed 1"))
    report = Report(1_234_567)
    report.reasons.update({"wrong_type": 1_234, "future_event_time": 2})
    result_console().print(report.table())


COMMANDS: list[Callable[[], None]] = [
    rules,
    given_up,
    entries,
    nights,
    backtests,
    job,
    upkeep,
    topic_list,
    an_alert,
    simulated,
]


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> list[RecordTable]:
    """The tables that are made."""
    made: list[RecordTable] = []
    begin = RecordTable.__init__

    def remember(self: RecordTable, *columns: Any, **options: Any) -> None:
        made.append(self)
        begin(self, *columns, **options)

    monkeypatch.setattr(RecordTable, "__init__", remember)
    return made


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_every_value_is_legible(
    command: Callable[[], None], width: int, printed: list[RecordTable], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Each value but prose stands in one line as it is, each word of prose too; no line is wider than the terminal."""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    command()
    shown = [re.sub(r"\x1b\[[0-9;]*m", "", each) for each in capsys.readouterr().out.splitlines()]
    assert printed
    tables = [each for each in shown if "│" in each or "┃" in each]
    assert all(len(each) <= width for each in tables)
    text = "\n".join(shown)
    for records in printed:
        for row in records.rows:
            for column, cell in zip(records.columns, row, strict=True):
                parts = cell.plain.split() if column.is_prose else cell.plain.split("\n")
                for part in parts:
                    if len(part) < width - 20:
                        assert part in text, f"{column.title}: {part!r} is not in\n{text}"
                    else:
                        assert part in re.sub(r"[\s│]+", "", text), f"{column.title}: {part!r} is not in\n{text}"


def console(width: int, *, terminal: bool = True) -> SafeConsole:
    """A console of this width."""
    made = SafeConsole()
    made._force_terminal = terminal
    made.width = width
    return made


def sample() -> RecordTable:
    """Two rows with a number and a sentence."""
    records = RecordTable("rule", number("alerts a day"), prose("why"), title="drafts", caption="two")
    records.add_row("burst", "1,234.5", "because somebody wanted to see fewer alerts")
    records.add_row(lines("trial\nof two lines"), "2.0", "")
    return records


def test_what_fits_is_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """With prose on one line where there is room, wrapped at words where there is less."""
    console(100).print(sample())
    assert capsys.readouterr().out.count("because somebody wanted to see fewer alerts") == 1
    console(60).print(sample())
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert any("because somebody wanted" in each for each in shown)
    assert all(len(each) <= 60 for each in shown)


def test_what_does_not_fit_is_blocks(capsys: pytest.CaptureFixture[str]) -> None:
    """One for each row; empty cells are left out."""
    console(35).print(sample())
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert [each.rstrip() for each in shown] == [
        "drafts",
        "rule          burst",
        "alerts a day  1,234.5",
        "why           because somebody",
        "              wanted to see fewer",
        "              alerts",
        "",
        "rule          trial",
        "              of two lines",
        "alerts a day  2.0",
        "two",
    ]


def test_a_file_has_no_width(capsys: pytest.CaptureFixture[str]) -> None:
    """There a row is not made a block, and nothing is cut."""
    records = RecordTable(*(f"column {at}" for at in range(30)))
    records.add_row(*(f"a value {at}" for at in range(30)))
    console(140, terminal=False).print(records)
    (row,) = (each for each in capsys.readouterr().out.splitlines() if "a value 0" in each)
    assert "a value 29" in row


def test_minutes_are_minutes() -> None:
    """They are followed by the zone and a comma."""
    assert rules_list._said("ann", "2026-11-20T07:23:12.000000Z", "trial") == "ann, 2026-11-20 07:23 UTC, trial"
