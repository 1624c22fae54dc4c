"""Measures over alerts of other rules: what they may name, and what their versions carry along (S23).

What they find is held by the random histories and runs, and by case files.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nightjar.rules.durations import MICROSECONDS
from nightjar.rules.errors import RuleError
from nightjar.rules.model import parse_rule, rule_to_mapping, rules_of
from nightjar.rules.publishing import Answer, judge
from nightjar.rules.retention import named_by, widest
from nightjar.rules.streams import load_streams
from nightjar.rules.versions import NOT_YET, RuleSet, naming
from nightjar.streaming.priming.coverage import needs_of

STREAMS = load_streams()
HOUR, DAY = MICROSECONDS["h"], MICROSECONDS["d"]
LARGE: dict[str, Any] = {
    "id": "large",
    "stream": "transactions",
    "group_by": ["customer_id"],
    "when": "amount > 500",
    "score": 40,
    "tags": ["scored"],
}
POINTS: dict[str, Any] = LARGE | {
    "id": "points",
    "measures": {"points": {"sum": "score", "over": "1d", "over_alerts": ["large", "tag:scored"]}},
    "when": "points >= 70",
}


def over(length: str) -> dict[str, Any]:
    """A rule to name, with a window of that length."""
    return LARGE | {"measures": {"n": {"count": "*", "over": length}}, "when": "n > 1"}


def published(*rules: tuple[dict[str, Any], int]) -> RuleSet:
    """The rules, each with its effective time (µs)."""
    made = RuleSet()
    for written, effective in rules:
        made = made.publish(parse_rule(written, STREAMS), effective)
    return made


def test_its_written_form_is_read_again() -> None:
    """Score, tags, and what is named."""
    rule = parse_rule(POINTS, STREAMS)
    assert rule_to_mapping(rule)["measures"] == POINTS["measures"]
    assert parse_rule(rule_to_mapping(rule), STREAMS) == rule
    assert rule != parse_rule(POINTS | {"score": 41}, STREAMS), "another score is another version"


@pytest.mark.parametrize(
    ("measure", "problem"),
    [
        ({"sum": "amount"}, "sum of 'amount' is not possible over alerts. Write count: \"*\", sum: score or"),
        ({"max": "score"}, "max of 'score' is not possible over alerts"),
        ({"count": "rule"}, "count of 'rule' is not possible over alerts"),
        ({"count": "*", "over_alerts": []}, "over_alerts: is empty. Name rules or tags"),
        (
            {"count": "*", "over_alerts": ["Large one"]},
            "names 'Large one', which is neither the id",
        ),
        ({"count": "*", "over_alerts": ["large", "large"]}, "names a rule or tag twice"),
        ({"count": "*", "resolution": "1h"}, "does not go with resolution, as folded events are not evaluated again"),
        ({"count": "*", "over": None, "episode": "1h"}, "does not go with an episode. Write over: 1d"),
        ({"count": "*", "where": "n > 1"}, "looks at 'n', which does not go with over_alerts"),
    ],
)
def test_a_mistake_is_refused_with_a_remedy(measure: dict[str, Any], problem: str) -> None:
    """Whatever is wrong with the measure itself."""
    options = {"over": "1d", "over_alerts": ["large"], **measure}
    options = {key: value for key, value in options.items() if value is not None}
    written = POINTS | {"measures": {"points": options, "n": {"count": "*", "over": "1h"}}}
    with pytest.raises(RuleError) as refused:
        parse_rule(written, STREAMS)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"group_by": ["terminal_id"]}, "which groups by [terminal_id], unlike rule points"),
        ({"stream": "logins", "when": "status = 'FAIL'"}, "which is on stream logins, unlike rule points"),
        ({"score": None}, "which has no score. Give rule large a score"),
        (
            {"measures": {"n": {"count": "*", "over": "1d", "resolution": "1h"}}},
            "which has a measure with a resolution",
        ),
        ({"measures": {"n": {"count": "*", "over": "1d", "over_alerts": ["tag:x"]}}}, "which looks at alerts itself"),
    ],
)
def test_a_file_and_a_publication_refuse_what_cannot_be_counted(change: dict[str, Any], problem: str) -> None:
    """In a file where both rules are, and where either of them is published after the other."""
    other = {key: value for key, value in (LARGE | change).items() if value is not None}
    with pytest.raises(RuleError) as refused:
        rules_of([POINTS, other], STREAMS, where="a file")
    assert problem in str(refused.value)
    made, status = judge(published((other, 0)), POINTS, 0, STREAMS)
    assert made is None
    assert problem in str(status.reasons)
    if "stream" in change:
        return  # a rule keeps its stream
    _, status = judge(published((LARGE, 0), (POINTS, 0)), other, 0, STREAMS)
    assert status.answer is Answer.REJECTED
    assert "Change or retire rule points first, whose measures.points.over_alerts names this rule" in str(status)


@pytest.mark.parametrize("first", ["large", "points"])
def test_a_rule_that_goes_on_is_refused_where_it_could_no_longer_be_counted(first: str) -> None:
    """It, or the one that names it, was changed while one of them was paused."""
    paused = {"state": "paused"}
    waiting = LARGE | {"unless": {"within": "1h", "where": "amount < 0"}}
    known = published((LARGE, 0), (POINTS, 0))
    changed = (waiting | paused,) if first == "large" else (POINTS | paused, waiting)
    for message in changed:
        made, status = judge(known, message, 0, STREAMS)
        assert made is not None, status
        known = known.publish(made.rule, 0)
    for control in ("resume", "shadow"):
        made, status = judge(known, {"control": control, "rule": first}, 0, STREAMS)
        assert made is None
        assert "waits for what follows an event (unless)" in str(status.reasons)
    for control in ("pause", "retire"):
        assert judge(known, {"control": control, "rule": first}, 0, STREAMS)[1].answer is Answer.ACCEPTED


def test_a_file_has_rules_after_those_that_they_name() -> None:
    """So that they can be published in this order."""
    assert [rule.id for rule in rules_of([POINTS, LARGE], STREAMS, where="a file")] == ["large", "points"]


def test_a_version_carries_those_that_it_counts_along() -> None:
    """So it means the same without the rules that it names: where a night is asked for one rule."""
    of_both = published((over("2h"), 0), (POINTS, 0), (over("5h"), 10 * DAY))
    (alone,) = RuleSet(of_both.of_rule("points")).versions
    assert [version.key for version in alone.named] == [("large", 1), ("large", 2)]
    assert RuleSet((alone,)).versions[0] == alone


def test_the_width_is_that_of_the_versions_that_its_events_see() -> None:
    """S23.4: a version that was replaced before the first window began does not count, one that waits does."""
    versions = published((over("7d"), 0), (over("2h"), 10 * DAY), (POINTS, 12 * DAY)).of_rule("points")
    assert widest(versions[0]) == DAY + 2 * HOUR
    earlier = published((over("7d"), 0), (over("2h"), 10 * DAY), (POINTS, 10 * DAY + HOUR)).of_rule("points")
    assert widest(earlier[0]) == DAY + 7 * DAY
    assert widest(replace(versions[0], effective=NOT_YET)) == DAY + 7 * DAY
    assert [v.version for v in named_by(earlier[0], 20 * DAY)["large"]] == [2], "what later events can see"


def test_a_new_version_of_a_named_rule_is_primed_with_what_those_need_that_name_it() -> None:
    """S23.4: the window of the points before its own."""
    known = published((over("2h"), 0), (POINTS, 0))
    made, _ = judge(known, over("7d"), 10 * DAY, STREAMS)
    assert made is not None
    stream = STREAMS["transactions"]
    assert needs_of(made, stream).rows == 7 * DAY
    assert needs_of(made, stream, naming(made, known)).rows == 8 * DAY
