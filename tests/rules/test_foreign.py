"""Rule messages of other systems: what becomes of them, in our own form."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar.rules.errors import RuleError
from nightjar.rules.foreign import Forms, Reading, read_message
from nightjar.rules.publishing import Answer, judge
from nightjar.rules.streams import load_streams
from nightjar.rules.versions import RuleSet

STREAMS = load_streams()
FLINK: dict[str, Any] = {
    "ruleId": 1,
    "ruleState": "ACTIVE",
    "groupingKeyNames": ["payeeId"],
    "unique": [],
    "aggregateFieldName": "paymentAmount",
    "aggregatorFunctionType": "SUM",
    "limitOperatorType": "GREATER",
    "limit": 50,
    "windowMinutes": 20,
}


def read(message: Any, forms: Forms | None = None) -> Reading:
    """A message's reading; a mapping is sent as JSON."""
    sent = message if isinstance(message, str | bytes) else json.dumps(message)
    return read_message(sent, forms or Forms())


def refusal(message: Any) -> str:
    """Why a message is not published."""
    sent = message if isinstance(message, str | bytes) else json.dumps(message)
    made, status = judge(RuleSet(), sent, 0, STREAMS)
    assert (made, status.answer) == (None, Answer.REJECTED)
    return "\n".join(status.reasons)


def row(**columns: Any) -> dict[str, Any]:
    """A change event of a row that was inserted."""
    return {"op": "c", "before": None, "after": columns}


def test_text_and_json_are_one_rule() -> None:
    """Both forms of the demo come to the same rule of ours."""
    text = read("1,(active),(payeeId),,(paymentAmount),(sum),(>),(50),(20)")
    assert text.message == read(FLINK).message
    assert text.message == {
        "id": "flink-1",
        "stream": "payments",
        "state": "active",
        "group_by": ["payeeId"],
        "measures": {"sum_paymentAmount": {"sum": "paymentAmount", "over": "20m"}},
        "when": "sum_paymentAmount > 50",
    }


@pytest.mark.parametrize(
    ("names", "symbol"),
    [
        (["EQUAL", "=", "==", "eq"], "="),
        (["NOT_EQUAL", "!=", "<>", "ne"], "<>"),
        (["GREATER", ">", "gt"], ">"),
        (["GREATER_EQUAL", ">=", "ge", "gte"], ">="),
        (["LESS", "<", "lt", "Less"], "<"),
        (["LESS_EQUAL", "<=", "le", "lte"], "<="),
    ],
)
def test_an_operator_has_names_and_symbols(names: list[str], symbol: str) -> None:
    """In any case of letters."""
    for name in names:
        assert read(FLINK | {"limitOperatorType": name}).message["when"] == f"sum_paymentAmount {symbol} 50"


@pytest.mark.parametrize(
    ("limit", "written"),
    [
        ("50.00", "50.00"),
        ("0.1", "0.1"),
        ("123456789012345678.25", "123456789012345678.25"),
        ("-5", "-5"),
        ('"12.50"', "12.50"),
        ("1e3", "1000"),
    ],
)
def test_a_limit_keeps_its_digits(limit: str, written: str) -> None:
    """A double would not have all of them."""
    message = json.dumps(FLINK).replace('"limit": 50', f'"limit": {limit}')
    assert read(message).message["when"] == f"sum_paymentAmount > {written}"


@pytest.mark.parametrize("limit", ["NaN", "Infinity", "1e999", '"x"', "true", "[1]", "0." + "1" * 80])
def test_a_limit_is_a_number_that_a_field_could_have(limit: str) -> None:
    """Anything else is refused, and takes no time."""
    message = json.dumps(FLINK).replace('"limit": 50', f'"limit": {limit}')
    assert "number" in refusal(message)


@pytest.mark.parametrize(("written", "over"), [(3, "3m"), ("3m", "3m"), ("20", "20m"), (0.5, "0.5m"), ("90s", "90s")])
def test_a_window_is_minutes_or_a_duration(written: object, over: str) -> None:
    """A number has no unit, a text may have one."""
    (measure,) = read(FLINK | {"windowMinutes": written}).message["measures"].values()
    assert measure["over"] == over


@pytest.mark.parametrize(
    ("changes", "measure"),
    [
        ({"aggregateFieldName": "COUNT_FLINK"}, {"count_events": {"count": "*", "over": "20m"}}),
        (
            {"aggregateFieldName": None, "aggregatorFunctionType": "count"},
            {"count_events": {"count": "*", "over": "20m"}},
        ),
        (
            {"aggregatorFunctionType": "Count"},
            {"count_paymentAmount": {"count": "paymentAmount", "over": "20m"}},
        ),
        (
            {"aggregatorFunctionType": "UNIQUE_COUNT", "aggregateFieldName": "beneficiaryId"},
            {"count_distinct_beneficiaryId": {"count_distinct": "beneficiaryId", "over": "20m"}},
        ),
        (
            {"aggregatorFunctionType": "UNIQUE_COUNT", "aggregateFieldName": "", "unique": ["beneficiaryId"]},
            {"count_distinct_beneficiaryId": {"count_distinct": "beneficiaryId", "over": "20m"}},
        ),
    ],
)
def test_what_is_counted(changes: dict[str, Any], measure: dict[str, Any]) -> None:
    """Events, values of a field, or different values of it."""
    reading = read(FLINK | changes)
    assert reading.message["measures"] == measure
    assert reading.notes == ()


def test_the_stream_of_a_flink_rule_is_a_setting() -> None:
    """The demo knows one stream; where it is not declared, the answer names the setting."""
    assert read(FLINK, Forms(stream="transfers")).message["stream"] == "transfers"
    _, status = judge(RuleSet(), json.dumps(FLINK), 0, STREAMS, forms=Forms(stream="transfers"))
    assert status.reasons[0].startswith("imported_stream: there is no stream 'transfers'. Declared are")


def test_everything_that_is_wrong_is_said_in_the_words_of_the_sender() -> None:
    """Places are the demo's properties, and all problems are there."""
    wrong = FLINK | {"groupingKeyNames": ["taxiId"], "aggregateFieldName": "totalFare", "filter": "amount > 1"}
    places = [line.split(":")[0] for line in refusal(wrong).splitlines() if line[0] != " "]
    assert places == ["groupingKeyNames", "filter", "aggregateFieldName"]
    wrong = {"ruleId": [1], "ruleState": "stop", "groupingKeyNames": 5, "unique": {}, "aggregateFieldName": 1}
    places = [line.split(":")[0] for line in refusal(wrong | {"filter": 1}).splitlines()]
    assert sorted(places) == sorted(
        [
            "ruleId",
            "ruleState",
            "groupingKeyNames",
            "unique",
            "aggregateFieldName",
            "aggregatorFunctionType",
            "limitOperatorType",
            "limit",
            "windowMinutes",
            "filter",
        ]
    )


def test_a_large_value_that_debezium_left_out_is_refused_with_the_remedy() -> None:
    """Debezium's placeholder is not a rule."""
    left_out = row(id="large", rule="__debezium_unavailable_value")
    assert "after.rule: is not in the message" in refusal(left_out)
    assert "REPLICA IDENTITY FULL" in refusal(left_out)


def test_a_row_may_have_the_demos_properties_as_columns() -> None:
    """In snake case, as a database likes them, or in camel case; with or without the schema around the event."""
    snake = row(
        rule_id=1,
        rule_state="ACTIVE",
        grouping_key_names="payeeId",
        aggregate_field_name="paymentAmount",
        aggregator_function_type="SUM",
        limit_operator_type=">",
        limit="50",
        window_minutes=20,
    )
    assert read(snake).message == read(FLINK).message
    assert read({"schema": {}, "payload": row(**FLINK)}).message == read(FLINK).message


def test_a_row_holds_a_rule_of_either_form_as_text() -> None:
    """YAML or JSON; who changed the row is the version's author, unless the rule itself says."""
    ours = "{stream: payments, group_by: [payeeId], when: paymentAmount > 1}"
    assert read(row(id="large", rule=ours, author="ann")).message == {
        "id": "large",
        "stream": "payments",
        "group_by": ["payeeId"],
        "when": "paymentAmount > 1",
        "author": "ann",
    }
    assert read(row(id="large", rule="{author: bob}", author="ann")).message["author"] == "bob"
    assert read(row(rule_id=1, rule=json.dumps(FLINK))).message == read(FLINK).message


@pytest.mark.parametrize("deleted", [True, 1, "true", "t", 1767225600000000, "2026-01-01T00:00:00Z"])
def test_a_row_marked_as_deleted_retires_its_rule(deleted: object) -> None:
    """The column is a setting; it may be a flag or the time of the deletion."""
    changed = row(id="large", rule="{}", gone=deleted)
    assert read(changed, Forms(deleted="gone")).message == {"control": "retire", "rule": "large"}
    assert "control" not in read(changed).message


@pytest.mark.parametrize("deleted", [False, 0, None, "false", "f", "0", ""])
def test_a_row_that_is_not_marked_is_a_rule(deleted: object) -> None:
    """A column that is empty, or says no."""
    assert read(row(id="large", rule="{when: x}", deleted=deleted)).message == {"id": "large", "when": "x"}


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("", "is empty: a tombstone"),
        ({"schema": {}, "payload": None}, "is empty: a tombstone"),
        ({"op": "t", "before": None}, "is not a change of one rule"),
        ({"op": "d", "before": None, "after": None}, "REPLICA IDENTITY"),
        ({"op": "d", "before": {"number": 5}}, "has no text column id"),
        (row(id="large"), "has no column rule"),
        (row(id="large", rule="[1]"), "does not hold one rule"),
        (row(id="large", rule="a: 1\n---\na: 2"), "does not hold one rule"),
        (row(id="large", rule="a: {"), "after.rule: is not YAML or JSON"),
        (row(id="large", rule="a: &x 1\nb: *x"), "after.rule: a reference"),
        (row(rule="{when: x}"), "has no text column id"),
        (row(id="large", rule="{control: pause, rule: large}"), "is a control message"),
        (row(id="large", rule=json.dumps(row(id="large", rule="{}"))), "after.rule.stream: is missing"),
        (row(id="large", rule="{id: small}"), "is not the rule of its row"),
        ("1,(active),(payeeId)", "has 3 parts"),
        ("one,(active),,,(paymentAmount),(SUM),(>),(5),(many)", "windowMinutes: 'many' is not a duration"),
        ("1,(" + "active" * 50_000 + "),", "more than 262144 bytes"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(message: object, reason: str) -> None:
    """Anybody may publish, so every message is answered."""
    assert reason in refusal(message)


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["1", "SUM", ">"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)
_keys = st.sampled_from([*FLINK, "filter", "controlType", "op", "before", "after", "payload", "id", "rule", "rule_id"])
_messages = st.dictionaries(_keys, _values | st.dictionaries(_keys, _values, max_size=6), max_size=8)


@given(_messages)
def test_a_message_is_read_or_refused(message: dict[str, Any]) -> None:
    """Whatever its values are: nothing else is raised, and what is read is a rule or a control message."""
    _, status = judge(RuleSet(), message, 0, STREAMS)
    assert status.answer in (Answer.ACCEPTED, Answer.REJECTED)
    with suppress(RuleError):
        json.dumps(dict(read_message(message, Forms()).message))
