"""The demo's verdict: the stream's alerts equal the truth, or a late event explains why not."""

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from nightjar.demo.history import DemoHistory, draw_history
from nightjar.demo.verdict import LATE_IN_WINDOW, LATE_ITSELF, compare, exact_json
from nightjar.demo.watching import Tally
from nightjar.jvm.jars import PROJECT
from nightjar.rules.engine import Engine
from nightjar.rules.model import load_rules
from nightjar.rules.streams import load_streams
from nightjar.rules.timestamps import microseconds
from nightjar.rules.versions import RuleSet
from nightjar.terminal.alert_lines import Alert

STREAMS = load_streams()


@pytest.fixture(scope="module")
def history() -> DemoHistory:
    """The days the demo replays."""
    return draw_history(STREAMS)


@pytest.fixture(scope="module")
def ruleset(history: DemoHistory) -> RuleSet:
    """The rules from the start, and the changes where the demo has them."""
    published = RuleSet.of(load_rules(PROJECT / "examples" / "rules.yaml", STREAMS), history.begins)
    for rule in load_rules(PROJECT / "examples" / "changes.yaml", STREAMS):
        published = published.publish(rule, history.change_published, history.change_holds - history.change_published)
    return published


def streamed(history: DemoHistory, ruleset: RuleSet, name: str) -> dict[str, dict[str, Any]]:
    """The stream's final alerts on events in order of arrival, by alert id."""
    share = history.streams[name]
    engine = Engine(share.stream, ruleset.of_stream(name))
    events = share.events.sort_by("arrival_time")
    reported: dict[str, dict[str, Any]] = {}
    for begin in range(0, events.num_rows, 500):
        batch = events.slice(begin, 500)
        for alert in engine.advance(batch, clock=batch["arrival_time"].cast(pa.int64())[0].as_py()).alerts.to_pylist():
            reported[alert["alert_id"]] = alert | {"measures": exact_json(alert["measures"])}
    return {key: alert for key, alert in reported.items() if alert["kind"] == "alert"}


def compared(history: DemoHistory, ruleset: RuleSet, name: str, final: Iterable[dict[str, Any]]) -> Any:
    """The comparison of one stream."""
    share = history.streams[name]
    return compare(share.stream, ruleset, share.events, final)


@pytest.mark.parametrize("name", ["transactions", "logins"])
def test_late_events_explain_every_difference(history: DemoHistory, ruleset: RuleSet, name: str) -> None:
    """An engine that keeps to docs/semantics.md differs from the truth by late events alone, and both causes occur."""
    found = compared(history, ruleset, name, streamed(history, ruleset, name).values())
    causes = {difference.cause for difference in found.differences}
    assert causes <= {LATE_ITSELF, LATE_IN_WINDOW}
    assert found.differences
    assert found.equal + len(found.differences) >= found.violations
    assert found.equal > 10 * len(found.differences)


def test_points_are_counted_before_and_after_the_change(history: DemoHistory, ruleset: RuleSet) -> None:
    """Customers reach seventy points by alerts of the rules as they were, and as they are changed."""
    final = streamed(history, ruleset, "transactions").values()
    reached = [alert for alert in final if alert["rule_id"] == "points-of-customer"]
    changed = [microseconds(alert["event_time"]) >= history.change_holds for alert in reached]
    assert {True, False} == set(changed)
    points = [(int(alert["measures"]["before"]), int(alert["measures"]["points"])) for alert in reached]
    assert all(before < 70 <= after for before, after in points)


def test_what_no_late_event_explains_is_found(history: DemoHistory, ruleset: RuleSet) -> None:
    """A missing alert, one too many, and one with another value are unexplained."""
    final = streamed(history, ruleset, "transactions")
    before = compared(history, ruleset, "transactions", final.values()).differences
    explained = {(d.rule_id, d.rule_version, d.event_id) for d in before}
    lost, changed, moved = [
        alert for alert in final.values() if (alert["rule_id"], 1, alert["event_id"]) not in explained
    ][:3]
    del final[lost["alert_id"]]
    final[changed["alert_id"]] = changed | {"measures": {**changed["measures"], "payments": "99"}}
    final["0" * 32] = moved | {"alert_id": "0" * 32, "event_id": "nobody"}
    after = compared(history, ruleset, "transactions", final.values()).differences
    assert {d.event_id for d in after if d.cause is None} == {lost["event_id"], changed["event_id"], "nobody"}


def test_numbers_are_compared_by_their_digits() -> None:
    """A decimal keeps its zeros and a double all its digits."""
    assert exact_json(json.dumps({"a": 1.10, "b": 3, "c": "7.00", "d": None})) == {
        "a": "1.1",
        "b": "3",
        "c": "7.00",
        "d": None,
    }


def test_tally_keeps_the_highest_revision_and_counts_each_once() -> None:
    """Whatever is delivered twice, or in another order, counts once."""
    first = {
        "alert_id": "a",
        "revision": 1,
        "kind": "alert",
        "rule_id": "r",
        "stream": "logins",
        "measures": {"n": 1.5},
    }
    tally = Tally()
    for record in (first, first | {"revision": 2}, first, first | {"alert_id": "b"}):
        tally.take_alert(Alert(record, 1000), exact_json(json.dumps(record))["measures"])
    assert [record["measures"] for record in tally.final_alerts("logins")] == [{"n": "1.5"}, {"n": "1.5"}]
    assert (tally.announced["r"], tally.revisions["r"], tally.retractions["r"]) == (2, 1, 0)
    withdrawn = first | {"revision": 3, "kind": "retraction"}
    tally.take_alert(Alert(withdrawn, None), {})
    assert [record["alert_id"] for record in tally.final_alerts("logins")] == ["b"]
    assert tally.retractions["r"] == 1
