"""`nightjar simulate`: the bare engine as a host of cases, and the command."""

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from nightjar.cases import CaseOutcome, read_case
from nightjar.cases.model import KEYS
from nightjar.cases.simulate import simulate
from nightjar.cli.app import app
from nightjar.rules.errors import NightjarError
from tests.support.command import run

CASE = """
title: Two payments in ten minutes
settings: {activation_delay: 0s}
steps:
  - at: 0m
    rules:
      - id: burst
        stream: transactions
        group_by: [customer_id]
        measures: {payments: {count: "*", over: 10m}, spent: {sum: amount, over: 10m}}
        when: "payments >= 2"
        description: "{payments} payments"
        action: {restrict: block_customer, for: 1h}
  - at: 5m
    events:
      transactions:
        - {transaction_id: t1, event_time: 4m, customer_id: ann, terminal_id: m1, amount: 10.10}
        - {transaction_id: t2, event_time: 5m, customer_id: ann, terminal_id: m1, amount: 0.20}
        - "garbage"
"""
EXPECT = """
expect:
  final:
    - {event_id: t2, measures: {payments: 2, spent: 10.30}}
"""


def played(text: str) -> CaseOutcome:
    """What comes of a case."""
    return simulate(read_case(dedent(text), "case.yaml"))


def payments(*events: str) -> str:
    """Payments of ann, each (id, minute, amount)."""
    rows = [event.split() for event in events]
    fields = "customer_id: ann, terminal_id: m1"
    return ", ".join(f"{{transaction_id: {i}, event_time: {m}m, {fields}, amount: {amount}}}" for i, m, amount in rows)


def test_an_alert_is_the_whole_record() -> None:
    """All keys of S10 that exist so far, in their order."""
    (alert,) = played(CASE).alerts
    assert [*alert, "overflow"] == list(KEYS["alerts"])
    assert alert == {
        "alert_id": alert["alert_id"],
        "revision": 1,
        "kind": "alert",
        "rule_id": "burst",
        "rule_version": 1,
        "rule_state": "active",
        "stream": "transactions",
        "group": {"customer_id": "ann"},
        "event_id": "t2",
        "event_time": "2026-01-01T00:05:00.000000Z",
        "measures": {"payments": 2, "spent": "10.30"},
        "severity": "medium",
        "text": "2 payments",
        "muted": False,
        "source": "stream",
        "emitted_at": "2026-01-01T00:05:00.000000Z",
    }


def test_every_section_has_the_keys_a_case_may_expect() -> None:
    """What the reader admits in `expect` is what the host gives."""
    late = f"{CASE}  - {{at: 30m, events: {{transactions: [{payments('t3 1 5')}]}}}}"
    outcome = played(late)
    for section, rows in outcome.as_dict().items():
        if section not in ("state", "simultaneous"):
            assert rows, section
            # nobody approved or declined, and no alert is beyond a cap
            decided = ("approver", "approval_reason", "declined_by", "decline_reason")
            known = [key for key in KEYS[section] if key not in (*decided, "overflow")]
            assert all(list(row) == known for row in rows), section


def test_no_time_of_a_record_is_after_year_9999() -> None:
    """What follows from the last times that an event or a rule may have ends with them, and nothing is raised."""
    outcome = played(
        """
        settings: {activation_delay: 24h}
        steps:
          - at: 9999-12-31T22:00:00Z
            rules:
              - {id: early, stream: transactions, group_by: [customer_id], when: "amount > 1",
                 action: {restrict: block, for: 24h}, effective: 2026-01-01T00:00:00Z}
              - {id: late, stream: transactions, group_by: [customer_id], when: "amount > 1"}
            events:
              transactions:
                - {transaction_id: t, event_time: 9999-12-31T22:00:00Z, customer_id: a, terminal_id: m, amount: 5}
        """
    )
    assert [alert["rule_id"] for alert in outcome.alerts] == ["early"]
    last = "9999-12-31T23:59:59.999999Z"
    assert [restriction["ends_at"] for restriction in outcome.restrictions] == [last]
    accepted = {row["rule_id"]: row["effective"] for row in outcome.rule_status if row["status"] == "ACCEPTED"}
    assert accepted == {"early": "2026-01-01T00:00:00.000000Z", "late": last}


def test_final_is_the_highest_revision_without_retractions() -> None:
    """A retracted alert is not there, one that came back is."""
    outcome = played(
        f"""
        settings: {{activation_delay: 0s}}
        steps:
          - at: 0m
            rules:
              - {{id: peak, stream: transactions, group_by: [customer_id], when: "amount = most AND n > 1",
                 measures: {{most: {{max: amount, over: 1h}}, n: {{count: "*", over: 1h}}}}}}
          - {{at: 5m, events: {{transactions: [{payments("a 1 5", "c 3 20", "e 5 30")}]}}}}
          - {{at: 6m, events: {{transactions: [{payments("b 2 25")}]}}}}
        """
    )
    found = [(alert["event_id"], alert["revision"], alert["kind"]) for alert in outcome.alerts]
    assert found == [("c", 1, "alert"), ("e", 1, "alert"), ("c", 2, "retraction"), ("b", 1, "alert"), ("e", 2, "alert")]
    assert [(alert["event_id"], alert["revision"]) for alert in outcome.final] == [("e", 2), ("b", 1)]


def test_rules_of_a_step_come_before_its_events() -> None:
    """A rule that arrives with an event, and is effective by then, judges it."""
    step = f"""
        steps:
          - at: 1m
            events: {{transactions: [{payments("a 1 5")}]}}
            rules: [{{id: r, stream: transactions, group_by: [], when: "TRUE", effective: 1m}}]
        """
    assert [alert["event_id"] for alert in played(step).alerts] == ["a"]


def test_a_failure_is_said_once_for_each_version_and_measure() -> None:
    """However many events meet it, and whatever is lost in a crash."""
    big = 2**62
    counters = """
        streams:
          s: {event_id: id, event_time: at, entities: [who], fields: {id: string, at: timestamp, who: string, n: int64}}
        settings: {activation_delay: 0s}
        steps:
          - at: 0m
            rules: [&r {id: r, stream: s, group_by: [who], measures: {t: {sum: n, over: 1h}}, when: "t > 0"}]
        """
    steps = "".join(
        f"""
          - at: {minute}m
            crash: true
            events: {{s: [{{id: e{minute}, at: {minute}m, who: a, n: {big}}}]}}
        """
        for minute in range(1, 6)
    )
    change = '\n          - {at: 6m, rules: [{<<: *r, when: "t > 1"}]}'
    last = f"\n          - {{at: 7m, events: {{s: [{{id: e7, at: 7m, who: a, n: {big}}}]}}}}"
    status = played(counters + steps + change + last).rule_status
    failed = [(row["rule_version"], row["reasons"]) for row in status if row["status"] == "FAILED"]
    text = "measures.t: its exact value at event {} does not fit its type"
    assert failed == [(1, [text.format("e2")]), (2, [text.format("e7")])]


def test_corrections_are_what_the_night_would_say() -> None:
    """A late event makes t1 a second payment and t2 a third; the records are whole, but for the time of emission."""
    late = f"{CASE}  - {{at: 30m, events: {{transactions: [{payments('t3 3 5')}]}}}}"
    corrections = played(late).corrections
    assert [tuple(record) for record in corrections] == [KEYS["corrections"]] * 2
    found = [(r["event_id"], r["revision"], r["kind"], r["measures"]["payments"], r["cause"]) for r in corrections]
    assert found == [("t1", 1, "alert", 2, "late_event"), ("t2", 2, "alert", 3, "late_event")]


def test_state_is_by_stream_and_group_by() -> None:
    """Fields joined by commas, nothing for the whole stream; streams without rules are left out."""
    rules = ", ".join(
        f'{{id: r{i}, stream: transactions, group_by: [{by}], measures: {{n: {{count: "*", over: 1h}}}}, when: "n>9"}}'
        for i, by in enumerate(["", "customer_id", "customer_id, terminal_id"])
    )
    events = f"events: {{transactions: [{payments('a 1 5', 'b 1 5')}]}}"
    outcome = played(f"steps: [{{at: 0m, rules: [{rules}]}}, {{at: 1m, {events}}}]")
    assert outcome.state == {"transactions": {"": 2, "customer_id": 2, "customer_id,terminal_id": 2}}


# The command


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A case that comes out as it says, and one that does not."""
    (tmp_path / "good.yaml").write_text(CASE + EXPECT)
    (tmp_path / "wrong.yaml").write_text(CASE + EXPECT.replace("10.30", "10.31") + "  late: [{event_id: t9}]\n")
    return tmp_path


@pytest.mark.slow
def test_command_shows_what_came(folder: Path) -> None:
    """Alerts, answers to rules, quarantine, state."""
    done = run("simulate", "good.yaml", folder=folder)
    for line in (
        "ok Two payments in ten minutes",
        "payments 2, spent 10.30",
        "ACCEPTED burst v1",
        "quarantine: garbage: not_json",
    ):
        assert line in done.stdout
    assert "state: 2 events of transactions by customer_id" in done.stdout


@pytest.mark.slow
def test_command_shows_differences_row_by_row(folder: Path) -> None:
    """Expected row, the row that came, the fields that differ; exit code 1."""
    done = run("simulate", ".", code=1, folder=folder)
    assert "FAIL Two payments in ten minutes wrong.yaml" in done.stdout
    assert 'expected  {"event_id": "t2", "measures": {"payments": 2, "spent": 10.31}}' in done.stdout
    assert "measures.spent: expected 10.31, got" in done.stdout
    assert "late: was expected and is missing" in done.stdout
    assert "1 of 2 cases as expected" in done.stdout


@pytest.mark.slow
def test_command_prints_one_object_a_case(folder: Path) -> None:
    """For programs: all sections, and the differences."""
    good: dict[str, Any] = json.loads(run("simulate", "good.yaml", "--json", folder=folder).stdout)
    assert list(good) == [
        "case",
        "alerts",
        "final",
        "corrections",
        "restrictions",
        "late",
        "quarantine",
        "rule_status",
        "state",
        "simultaneous",
        "differences",
    ]
    assert good["final"][0]["measures"] == {"payments": 2, "spent": "10.30"}
    lines = run("simulate", "good.yaml", "wrong.yaml", "--json", code=1, folder=folder).stdout.splitlines()
    assert [len(json.loads(line)["differences"]) for line in lines] == [0, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps: [{at: 5m}, {at: 4m}]", "line 1: at: the step at"),
        ("steps: [{at: 0m, events: {payment: []}}]", "Did you mean payments?"),
        ("", "has 0 documents"),
        ("[]", "is not a mapping"),
    ],
)
def test_an_invalid_case_is_refused(folder: Path, text: str, message: str) -> None:
    """With the place and what would be right."""
    (folder / "bad.yaml").write_text(text)
    with pytest.raises(NightjarError) as refusal:
        app(["simulate", str(folder / "bad.yaml")], standalone_mode=False)
    assert message in str(refusal.value)


def test_bad_input_is_exit_code_2(folder: Path) -> None:
    """One message, no traceback."""
    done = run("simulate", "none.yaml", code=2, folder=folder)
    assert done.stderr.startswith("error: none.yaml: cannot be read")
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_answers_show_their_time_and_quarantine_the_event(tmp_path: Path) -> None:
    """A person sees from when on a rule applies, and which event could not be used."""
    late = CASE.replace("activation_delay: 0s", "activation_delay: 1m") + (
        "        - {transaction_id: t9, event_time: 5m, customer_id: ann, terminal_id: m1, amount: many}\n"
    )
    (tmp_path / "case.yaml").write_text(late)
    shown = run("simulate", "case.yaml", folder=tmp_path).stdout
    assert "  ACCEPTED burst v1, applies from 2026-01-01T00:01:00Z\n" in shown
    assert "  quarantine: garbage: not_json" in shown
    assert "  quarantine: t9: " in shown


def test_where_a_hash_decides_the_order_it_is_shown(tmp_path: Path) -> None:
    """S1.1: events of one group at the same time, in the order that the rules see; whoever wrote them in another finds
    out. Other groups, and duplicates, have nothing to do with it."""
    case = CASE.replace(
        '"garbage"', "{transaction_id: t3, event_time: 5m, customer_id: ann, terminal_id: m1, amount: 1}"
    )
    case += """        - {transaction_id: t3, event_time: 5m, customer_id: ann, terminal_id: m1, amount: 1}
        - {transaction_id: t4, event_time: 5m, customer_id: bob, terminal_id: m1, amount: 1}
"""
    (tied,) = played(case).simultaneous
    assert tied == {
        "stream": "transactions",
        "group": {"customer_id": "ann"},
        "event_time": "2026-01-01T00:05:00.000000Z",
        "event_ids": tied["event_ids"],
    }
    last = max(played(case).final, key=lambda alert: alert["measures"]["payments"])
    assert tied["event_ids"] == [*{"t2", "t3"} - {last["event_id"]}, last["event_id"]]
    (tmp_path / "case.yaml").write_text(case)
    shown = run("simulate", str(tmp_path / "case.yaml")).stdout
    assert f"  order: {', '.join(tied['event_ids'])} of customer_id ann happened at the same time" in shown
    assert "a hash of their ids orders them (S1.1)" in shown
    assert json.loads(run("simulate", "--json", str(tmp_path / "case.yaml")).stdout)["simultaneous"] == [tied]


def test_where_a_tie_breaker_decides_the_order_no_hash_is_shown() -> None:
    """S1.3: only events that have the same tie-breaker, too."""
    case = Path("tests/cases/equal-times-are-ordered-by-a-field.yaml").read_text()
    assert [row["event_ids"] for row in played(case).simultaneous] == [["b0", "b2"]]
