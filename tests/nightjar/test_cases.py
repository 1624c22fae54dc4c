"""Reading case files, and comparing what they expect with what came."""

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from nightjar.cases import CaseError, CaseOutcome, check, find_cases, load_case, read_case
from nightjar.cases.case_files import DEFAULT_BASE
from nightjar.cases.documents import Number
from nightjar.cases.model import KEYS, ExpectedOutcome
from nightjar.cases.simulate import simulate
from nightjar.rules.errors import NightjarError
from nightjar.rules.timestamps import iso_text, parse_timestamp

MINUTE = 60_000_000


def case(text: str) -> Any:
    """A case of a YAML text."""
    return read_case(dedent(text), "case.yaml")


def steps(body: str) -> Any:
    """The steps of a case with one step."""
    return case(f"steps:\n  - at: 0m\n    {body}\n").steps


def instant(text: str) -> int:
    """Microseconds of an ISO text."""
    found = parse_timestamp(text, zone_required=False)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("2026-03-01T12:00:00Z", "2026-03-01T12:00:00Z"),
        ('"2026-03-01T13:00:00+01:00"', "2026-03-01T12:00:00Z"),
        ("2026-03-01 12:00:00", "2026-03-01T12:00:00Z"),
        ("2026-03-01", "2026-03-01T00:00:00Z"),
        ("1772366400000", "2026-03-01T12:00:00Z"),
        ("1h 30m", "2026-01-01T01:30:00Z"),
        ('"+250ms"', "2026-01-01T00:00:00.25Z"),
    ],
)
def test_a_step_has_its_time_in_many_forms(at: str, expected: str) -> None:
    """ISO text with or without quotes, YAML's own time stamps, epoch milliseconds, offsets."""
    assert case(f"steps: [{{at: {at}}}]").steps[0].at == instant(expected)


@pytest.mark.parametrize(
    ("head", "first", "second"),
    [
        ("", "0m", DEFAULT_BASE + 5 * MINUTE),
        ("", "2026-03-01T12:00:00Z", instant("2026-03-01T12:05:00Z")),
        ("base: 2026-03-01T11:58:00Z", "2026-03-01T12:00:00Z", instant("2026-03-01T12:03:00Z")),
    ],
)
def test_offsets_count_from_the_base(head: str, first: str, second: int) -> None:
    """The base is the case's, else the first step's own time, else the first of January 2026."""
    assert case(f"{head}\nsteps: [{{at: {first}}}, {{at: 5m}}]").steps[1].at == second


def test_an_event_is_the_bytes_of_one_message() -> None:
    """Numbers keep their digits, times become ISO text with a zone, text in quotes is the raw message."""
    (step,) = steps(
        "events: {transactions: [{a: 0.10, b: 12345678901234567890.50, c: 1e3, event_time: 5m, d: 2026-03-01, "
        "e: 'x', f: null, g: true, h: no, i: 007, j: [1, {k: 2}]}, 'raw text', !!binary '//4=']}"
    )
    assert [message.raw for message in step.events] == [
        (
            b'{"a": 0.10, "b": 12345678901234567890.50, "c": 1e3, "event_time": "2026-01-01T00:05:00.000000Z", '
            b'"d": "2026-03-01", "e": "x", "f": null, "g": true, "h": "no", "i": "007", "j": [1, {"k": 2}]}'
        ),
        b"raw text",
        b"\xff\xfe",
    ]


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("2026-03-01 12:00:00", '"2026-03-01T12:00:00.000000Z"'),
        ("2026-03-01T12:00:00+02:00", '"2026-03-01T10:00:00.000000Z"'),
        ('"2026-03-01 12:00:00"', '"2026-03-01 12:00:00"'),
        ("1772366400000", "1772366400000"),
        ("soon", '"soon"'),
    ],
)
def test_an_event_time_in_quotes_is_sent_as_it_stands(written: str, sent: str) -> None:
    """YAML's own time stamps without a zone are UTC; text is the producer's business."""
    (step,) = steps(f"events: {{transactions: {{event_time: {written}}}}}")
    assert step.events[0].raw.decode() == f'{{"event_time": {sent}}}'


def test_rules_come_before_control_messages() -> None:
    """Both are messages on the rules topic; `effective` may be an offset."""
    (step,) = steps("control: {control: pause, rule: r, effective: 1h}\n    rules: [{id: r}, 'garbage']")
    assert step.rules == (
        b'{"id": "r"}',
        b"garbage",
        b'{"control": "pause", "rule": "r", "effective": "2026-01-01T01:00:00.000000Z"}',
    )


def test_a_rule_need_not_be_written_twice() -> None:
    """Anchors and merges work; the nearer key wins."""
    text = "steps:\n- at: 0m\n  rules:\n  - &r {id: r, when: a}\n- at: 1m\n  rules: {<<: *r, when: b}\n"
    assert case(text).steps[1].rules == (b'{"when": "b", "id": "r"}',)


def test_streams_and_settings_are_the_cases_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """They replace the shipped streams, and the environment has no say."""
    monkeypatch.setenv("NIGHTJAR_ACTIVATION_DELAY", "1h")
    made = case(
        """
        streams:
          s: {event_id: id, event_time: at, entities: [id], fields: {id: string, at: timestamp, n: int64}}
        settings: {activation_delay: 2s, buckets: 2}
        steps: [{at: 0m, events: {s: [{id: a, at: 1m, n: 1}]}}]
        """
    )
    assert list(made.streams) == ["s"]
    assert (made.settings.activation_delay, made.settings.buckets) == (2_000_000, 2)
    assert case("steps: [{at: 0m}]").settings.activation_delay == 5_000_000


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("steps: []", "line 1: steps: there are no steps"),
        ("[1]", "is not a mapping"),
        ("a: [", "line 2: is not YAML"),
        ("a: 1\n---\nb: 2", "has 2 documents"),
        ("stepps: [{at: 0m}]", "line 1: stepps: is not a key of a case. Did you mean steps?"),
        ("steps:\n- at: 0m\n  event: {}", "line 3: event: is not a key of a step. Did you mean events?"),
        ("steps:\n- rules: []", "line 2: the step has no time"),
        ("steps:\n- at: noon", 'line 2: at: "noon" is not a point in time'),
        ("steps:\n- at: 1.5", "line 2: at: 1.5 is not a point in time"),
        (
            "steps:\n- at: 5m\n- at: 4m",
            "line 3: at: the step at 2026-01-01T00:04:00.000000Z is before the previous one",
        ),
        ("steps:\n- at: 0m\n  crash: maybe", "line 3: crash: is not true or false"),
        ("steps:\n- at: 0m\n  events: [1]", "line 3: events: is not a mapping of streams"),
        (
            "steps:\n- at: 0m\n  events:\n    transaction: []",
            "line 4: transaction: is not a declared stream. Did you mean",
        ),
        ("steps:\n- at: 0m\n  events:\n    logins: [[1]]", "line 4: logins: [1] is not a message"),
        ("steps:\n- at: 0m\n  rules: true", "line 3: rules: true is not a message"),
        ("settings: {bucket: 2}\nsteps: [{at: 0m}]", "line 1: bucket: is not a setting. Did you mean buckets?"),
        ("settings: {activation_delay: 5}\nsteps: [{at: 0m}]", "line 1: activation_delay: '5' is not a duration"),
        ("streams: {s: {}}\nsteps: [{at: 0m}]", "case.yaml: streams.s"),
        (
            "steps: [{at: 0m}]\nexpect: {alert: []}",
            "line 2: alert: is not a section of the results. Did you mean alerts?",
        ),
        ("steps: [{at: 0m}]\nexpect:\n  final:\n  - {rule: r}", "line 4: rule: is not a key of the rows of final"),
        ("steps: [{at: 0m}]\nexpect: {final: [1]}", "line 2: final: 1 is not a row"),
        ("steps: [{at: 0m}]\nexpect: {late: {event_time: x}}", 'line 2: event_time: "x" is not a point in time'),
        ("steps: [{at: 0m}]\nexpect: {state: {s: 5}}", "line 2: state: is not rows by stream and group-by"),
        ("steps: [{at: 0m}]\nexpect: {state: {s: {a: b}}}", 'line 2: a: "b" is not a number of rows'),
        ("a: 1\na: 2", "line 2: duplicate key 'a'"),
        ("steps: [{at: 0m, rules: {count: *}}]", 'Put a star in quotes, as in count: "*"'),
        ("steps: &s [*s]", "is too large or refers to itself"),
        ("a: !!python/name:os.system x", "unknown tag tag:yaml.org,2002:python/name:os.system"),
        ("a: !!binary '!'", "is not base64"),
        ("<<: 5", "<< takes a mapping"),
        ("title: [1]\nsteps: [{at: 0m}]", "line 1: title: is not text"),
    ],
)
def test_a_bad_case_is_reported_with_its_line(text: str, reported: str) -> None:
    """What is wrong, where, and what would be right."""
    with pytest.raises(NightjarError) as refused:
        case(text)
    assert reported in str(refused.value)
    assert str(refused.value).startswith("case.yaml")


def test_a_few_bytes_cannot_fill_the_memory() -> None:
    """Ten levels of ten aliases are ten billion values."""
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 11)]
    with pytest.raises(CaseError, match="too large"):
        case("\n".join(lines))


def test_folders_are_searched_for_cases(tmp_path: Path) -> None:
    """All below, in order; other files are left aside."""
    for name in ("b.yaml", "a/c.yml", "a/notes.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("steps: [{at: 0m}]")
    assert find_cases([tmp_path]) == [tmp_path / "a/c.yml", tmp_path / "b.yaml"]
    assert load_case(tmp_path / "b.yaml").title == "b"
    (tmp_path / "empty").mkdir()
    with pytest.raises(CaseError, match="has no case files"):
        find_cases([tmp_path / "empty"])
    with pytest.raises(CaseError, match="cannot be read"):
        load_case(tmp_path / "none.yaml")


# Comparing


def expected(rows: str) -> ExpectedOutcome:
    """What a case expects of its final alerts."""
    found = case(f"steps: [{{at: 0m}}]\nexpect:\n  final: {rows}").expect
    assert isinstance(found, ExpectedOutcome)
    return found


def alert(**changes: Any) -> dict[str, Any]:
    """One alert record."""
    record = {
        **dict.fromkeys(KEYS["alerts"]),
        "alert_id": f"{changes.get('event_id', 'e')}",
        "revision": 1,
        "kind": "alert",
        "event_id": "e",
        "event_time": iso_text(DEFAULT_BASE + 5 * MINUTE),
        "group": {"who": "ann", "seen": iso_text(DEFAULT_BASE)},
        "measures": {"spent": "12.50", "mean": 1 / 3, "n": 2, "none": None, "big": 9007199254740993, "flag": True},
        "muted": False,
    }
    return record | changes


@pytest.mark.parametrize(
    "row",
    [
        "{}",
        "{event_id: e}",
        "{event_time: 5m}",
        "{event_time: 2026-01-01 00:05:00}",
        "{event_time: 1767225900000}",
        "{measures: {spent: 12.5}}",
        "{measures: {spent: '12.50'}}",
        "{measures: {n: 2.0, none: null}}",
        "{measures: {mean: 0.3333333333333}}",
        "{measures: {big: 9007199254740993}}",
        "{measures: {flag: true}, muted: false}",
        "{group: {who: ann, seen: 2026-01-01}}",
    ],
)
def test_a_row_matches_by_the_keys_that_matter(row: str) -> None:
    """Numbers by value, times in any writing, mappings partly."""
    assert check(expected(f"[{row}]"), CaseOutcome(alerts=[alert()])) == []


@pytest.mark.parametrize(
    ("row", "path", "got"),
    [
        ("{event_id: f}", "event_id", "e"),
        ("{event_time: 6m}", "event_time", "2026-01-01T00:05:00.000000Z"),
        ("{measures: {spent: '12.5'}}", "measures.spent", "12.50"),
        ("{measures: {spent: 12.51}}", "measures.spent", "12.50"),
        ("{measures: {mean: 0.333}}", "measures.mean", 1 / 3),
        ("{measures: {big: 9007199254740992}}", "measures.big", 9007199254740993),
        ("{measures: {none: 0}}", "measures.none", None),
        ("{measures: {more: null}}", "measures.more", None),
        ("{measures: {flag: 1}}", "measures.flag", True),
        ("{measures: {n: true}}", "measures.n", 2),
        ("{group: ann}", "group", {"who": "ann", "seen": "2026-01-01T00:00:00.000000Z"}),
    ],
)
def test_a_difference_names_the_key_and_both_values(row: str, path: str, got: Any) -> None:
    """The row that is nearest is shown beside the one that was expected."""
    (difference,) = check(expected(f"[{row}]"), CaseOutcome(alerts=[alert()]))
    (mismatch,) = difference.mismatches
    assert (mismatch.path, mismatch.got) == (path, got)
    json.dumps(difference.as_dict())


def test_rows_find_their_own_whatever_their_order() -> None:
    """A row with little content does not take the place of one with more."""
    alerts = [alert(event_id="a", severity="high"), alert(event_id="b", severity="high")]
    assert check(expected("[{severity: high}, {event_id: a}]"), CaseOutcome(alerts=alerts)) == []
    assert check(expected("[{event_id: b}, {event_id: a}]"), CaseOutcome(alerts=alerts)) == []


def test_missing_and_surplus_rows_are_reported() -> None:
    """Each by itself: an expected row with its nearest, and what else came."""
    surplus, missing = CaseOutcome(alerts=[alert(event_id="a"), alert(event_id="b")]), CaseOutcome()
    assert [(d.expected, d.got["event_id"]) for d in check(expected("[{event_id: a}]"), surplus) if d.got] == [
        (None, "b")
    ]
    assert [d.got for d in check(expected("[{event_id: a}]"), missing)] == [None]
    assert len(check(expected("[]"), surplus)) == 2


def test_sections_that_are_not_named_are_not_checked() -> None:
    """An empty list is: nothing may come."""
    made = case("steps: [{at: 0m, events: {logins: ['x']}}]\nexpect: {alerts: [], quarantine: [{detail: Expecting}]}")
    assert check(made.expect, simulate(made)) == []
    (difference,) = check(ExpectedOutcome({"quarantine": []}), simulate(made))
    assert difference.got is not None
    assert difference.got["reason"] == "not_json"
    assert check(ExpectedOutcome(), simulate(made)) == []


def test_prose_must_occur_in_the_message() -> None:
    """Details and reasons are for people, and change their words."""
    made = case("steps: [{at: 0m, rules: ['x']}]\nexpect: {rule_status: [{reasons: [is not JSON, is a mapping]}]}")
    assert check(made.expect, simulate(made)) == []
    worse = case("steps: [{at: 0m, rules: ['x']}]\nexpect: {rule_status: [{reasons: [is not XML]}]}")
    assert [m.path for d in check(worse.expect, simulate(worse)) for m in d.mismatches] == ["reasons"]


def test_state_is_compared_by_stream_and_group_by() -> None:
    """What is not there holds nothing."""
    made = case('steps: [{at: 0m}]\nexpect: {state: {logins: {ip: 0, "": 3, "ip,device": 2}}}')
    state = {"logins": {"": 3, "ip,device": 1}}
    (difference,) = check(made.expect, CaseOutcome(state=state))
    assert [(m.path, m.expected, m.got) for m in difference.mismatches] == [("ip,device", 2, 1)]


@pytest.mark.parametrize(
    ("expected", "got", "matches"),
    [
        ("0", 9e-13, False),
        ("0", 0.0, True),
        ("9e-13", 0.0, False),
        ("9e-13", 9.0000000001e-13, True),
        ("1.5", 1.5, True),
    ],
)
def test_doubles_match_to_nine_digits_of_their_own(expected: str, got: float, matches: bool) -> None:
    """However small they are; 0 matches 0 only."""
    wanted = ExpectedOutcome(rows={"final": [{"measures": {"m": Number(expected)}}]})
    outcome = CaseOutcome(alerts=[{"alert_id": "a", "revision": 1, "kind": "alert", "measures": {"m": got}}])
    assert (check(wanted, outcome) == []) is matches
