"""The demo's table must add up, or the demo fails."""

from collections import Counter

import pytest

from nightjar.demo import report
from nightjar.demo.history import DemoHistory, draw_history
from nightjar.demo.verdict import LATE_ITSELF, Deviation, StreamVerdict
from nightjar.demo.watching import Tally
from nightjar.kafka.readers import KafkaRecord
from nightjar.operations.job_watch import JobState
from nightjar.replay import RecordKind
from nightjar.rules.streams import load_streams
from nightjar.terminal.alert_lines import Alert
from nightjar.terminal.console import SafeConsole


@pytest.fixture(scope="module")
def history() -> DemoHistory:
    """The days the demo replays."""
    return draw_history(load_streams())


def outcome(history: DemoHistory) -> tuple[Tally, JobState, dict[str, StreamVerdict]]:
    """The output of a job that does everything right."""
    tally, state = Tally(), JobState()
    for number, (name, share) in enumerate(history.streams.items()):
        kinds = share.kinds
        events = share.plan.num_rows - kinds[RecordKind.MALFORMED]
        counts = {"events": events, "late": kinds[RecordKind.LATE], "duplicates": kinds[RecordKind.DUPLICATE]}
        state.buckets[number] = {"stream": name, "counts": counts}
        tally.late[name] = kinds[RecordKind.LATE]
        tally.quarantined[name] = Counter(share.reasons)
    return tally, state, {name: StreamVerdict(1, 1, []) for name in history.streams}


def failing(history: DemoHistory, tally: Tally, state: JobState, comparisons: dict[str, StreamVerdict]) -> set[str]:
    """What does not hold."""
    return {check.what for check in report.checks(history.streams, tally, state, comparisons) if not check.holds}


def test_everything_holds_where_every_record_is_accounted_for(history: DemoHistory) -> None:
    """A job that does everything right passes."""
    assert failing(history, *outcome(history)) == set()


def test_lost_event_is_noticed(history: DemoHistory) -> None:
    """One event fewer than was sent."""
    tally, state, comparisons = outcome(history)
    state.buckets[0]["counts"]["events"] -= 1
    assert failing(history, tally, state, comparisons) == {
        "transactions: records seen or quarantined, of those sent",
        "transactions: events seen, duplicates not counted",
    }


def test_wrong_reason_is_noticed(history: DemoHistory) -> None:
    """A record quarantined, but for another reason than was planned."""
    tally, state, comparisons = outcome(history)
    tally.quarantined["logins"].subtract(["no_id"])
    tally.quarantined["logins"].update(["not_json"])
    assert failing(history, tally, state, comparisons) == {
        "logins: quarantined as no_id",
        "logins: quarantined as not_json",
    }


def test_difference_without_a_cause_is_noticed_and_named(history: DemoHistory) -> None:
    """It fails the demo, with the rule, the event and both values."""
    tally, state, comparisons = outcome(history)
    comparisons["logins"].differences.append(Deviation("logins", "r", 1, "l7", None, '{"n": "1"}', None))
    assert failing(history, tally, state, comparisons) == {
        "logins: differences from the truth that no late event explains"
    }
    assert report.unexplained(comparisons["logins"]) == ['r v1 at l7: stream no alert, truth {"n": "1"}']


def test_rule_without_alerts_is_noticed(history: DemoHistory) -> None:
    """Every rule that the demo publishes must find something."""
    tally, _, _ = outcome(history)
    tally.announced.update(["card-cloned", "points-of-customer"])
    assert report.rules_check(tally, {"card-cloned", "points-of-customer"}).holds
    assert not report.rules_check(tally, {"card-cloned", "points-of-customer", "address-guessing"}).holds


def test_alerts_are_shown_by_rule_and_stream() -> None:
    """Stream by stream, with the rules that only the truth finds."""
    tally = Tally()
    found = [("burst", "transactions"), ("burst", "transactions"), ("tries", "logins")]
    for number, (rule_id, stream) in enumerate(found):
        record = {"alert_id": f"{number}", "revision": 1, "kind": "alert", "rule_id": rule_id, "stream": stream}
        tally.take_alert(Alert(record, None), {})
    missed = Deviation("transactions", "apart", 1, "t1", None, '{"n": "1"}', LATE_ITSELF)
    comparisons = {"transactions": StreamVerdict(3, 2, [missed]), "logins": StreamVerdict(1, 1, [])}
    rows = [[cell.plain for cell in row] for row in report.rules_table(tally, comparisons).rows]
    assert rows == [
        ["tries", "logins", "1", "0", "0", "1", "0", "0", "0"],
        ["apart", "transactions", "0", "0", "0", "0", "1", "0", "0"],
        ["burst", "transactions", "2", "0", "0", "2", "0", "0", "0"],
        ["all", "", "3", "0", "0", "3", "1", "0", "0"],
    ]


def test_latency_is_shown_by_stage() -> None:
    """Half and nearly all of the alerts, on each part of their way; and the parts of a micro-batch."""
    tally = Tally()
    for number in range(1, 101):
        tally.take_latency(KafkaRecord("alerts", 0, 0, None, b"", 1_000_000 + number * 3000, 1_000_000, 2_000_000))
    tally.take_latency(KafkaRecord("alerts", 0, 0, None, b"", 1, None, 2))
    batches = {"p50_ms": {"run": 30.4, "whole": 1040.0}, "p99_ms": {"run": 60.0, "whole": 2000.0}}
    console = SafeConsole()
    with console.capture() as captured:
        console.print(report.latency_table(tally, batches))
    rows = [" ".join(line.replace("│", " ").split()) for line in captured.get().splitlines()]
    assert {"event sent to alert on Kafka 152 297", "event sent to receipt 1,000 1,000"} <= set(rows)
    assert {"micro-batch 1,040 2,000", "run 30 60"} <= set(rows)
