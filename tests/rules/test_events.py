"""What one event's JSON means."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar.rules.events import Reason, Rejection, check_skew, parse_event
from nightjar.rules.streams import streams_from_mapping
from nightjar.rules.timestamps import from_microseconds

STREAM = streams_from_mapping(
    {
        "things": {
            "event_id": "id",
            "event_time": "at",
            "entities": ["name"],
            "max_future_skew": "1m",
            "fields": {
                "id": "string",
                "at": "timestamp",
                "name": "string",
                "number": "int64",
                "ratio": "double",
                "flag": "boolean",
                "price": "decimal(12,2)",
            },
        }
    },
    "test",
)["things"]
GOOD = {
    "id": '"a1"',
    "at": '"2018-04-01T00:00:00Z"',
    "name": '"x"',
    "number": "1",
    "ratio": "0.5",
    "flag": "true",
    "price": "12.34",
}
APRIL = 1_522_540_800_000_000


def event_with(**texts: str | None) -> str:
    """The JSON of a good event but for these fields; None leaves one out."""
    fields = {**GOOD, **texts}
    return "{" + ", ".join(f'"{name}": {text}' for name, text in fields.items() if text is not None) + "}"


def test_an_optional_field_that_is_absent_is_null() -> None:
    """Absent or null is the same for it; a wrong type is refused, and so is another field's absence."""
    stream = replace(STREAM, optional=frozenset({"price", "name"}))
    absent = parse_event(event_with(price=None, name=None), stream)
    assert absent == parse_event(event_with(price="null", name="null"), stream)
    assert isinstance(absent, dict)
    assert (list(absent), absent["price"]) == (list(STREAM.fields), None)
    for text, reason in (
        (event_with(price="true"), Reason.MISTYPED_FIELD),
        (event_with(flag=None), Reason.MISSING_FIELD),
        (event_with(price=None, id=None), Reason.NO_ID),
        (event_with(price=None, at="null"), Reason.MISSING_FIELD),
    ):
        refused = parse_event(text, stream)
        assert isinstance(refused, Rejection)
        assert refused.reason == reason


def test_a_good_event_becomes_typed_values_in_declared_order() -> None:
    """Every declared field is there, typed; keys nobody declared are ignored."""
    parsed = parse_event(event_with(extra="[1]"), STREAM)
    assert parsed == {
        "id": "a1",
        "at": APRIL,
        "name": "x",
        "number": 1,
        "ratio": 0.5,
        "flag": True,
        "price": Decimal("12.34"),
    }
    assert list(parsed) == list(STREAM.fields)
    assert pa.Table.from_pylist([parsed], STREAM.schema).num_rows == 1


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("id", "123", "123"),
        ("id", "0", "0"),
        ("name", "1.50", "1.50"),
        ("name", "true", "true"),
        ("name", "null", None),
        ("name", '""', ""),
        ("number", "9223372036854775807", 2**63 - 1),
        ("number", "-9223372036854775808", -(2**63)),
        ("number", "null", None),
        ("ratio", "1", 1.0),
        ("ratio", "-1e3", -1000.0),
        ("flag", "false", False),
        ("price", "100", Decimal("100.00")),
        ("price", "12.3400", Decimal("12.34")),
        ("price", '"12.34"', Decimal("12.34")),
        ("price", "1e2", Decimal("100.00")),
        ("price", "-9999999999.99", Decimal("-9999999999.99")),
        ("price", "0e400", Decimal("0.00")),
        ("at", "1522540800000", APRIL),
        ("at", "-1", -1000),
        ("at", '"2018-04-01T02:00:00+02:00"', APRIL),
        ("at", '"2018-04-01 00:00Z"', APRIL),
        ("at", '"2018-04-01T00:00:00.123456789Z"', APRIL + 123_456),
        ("at", '"9999-12-31T23:59:59.999999Z"', 253_402_300_799_999_999),
    ],
)
def test_a_value_is_read_as_its_field_is_declared(name: str, text: str, value: Any) -> None:
    """Each type takes what JSON can say of it without loss."""
    parsed = parse_event(event_with(**{name: text}), STREAM)
    assert isinstance(parsed, dict)
    assert parsed[name] == value
    assert type(parsed[name]) is type(value)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", Reason.NOT_JSON),
        (b"\xff", Reason.NOT_JSON),
        ("{'id': 1}", Reason.NOT_JSON),
        ("[" * 100_000, Reason.NOT_JSON),
        (event_with(ratio="NaN"), Reason.NOT_JSON),
        ("[1]", Reason.NOT_AN_OBJECT),
        ("null", Reason.NOT_AN_OBJECT),
        ("5", Reason.NOT_AN_OBJECT),
        ("{}", Reason.NO_ID),
        (event_with(id=None), Reason.NO_ID),
        (event_with(id="null"), Reason.NO_ID),
        (event_with(id='""'), Reason.NO_ID),
        (event_with(name=None), Reason.MISSING_FIELD),
        (event_with(at=None), Reason.MISSING_FIELD),
        (event_with(at="null"), Reason.MISSING_FIELD),
        (event_with(id="{}"), Reason.MISTYPED_FIELD),
        (event_with(name="[1]"), Reason.MISTYPED_FIELD),
        (event_with(name='"\\ud800"'), Reason.MISTYPED_FIELD),
        (event_with(number="1.0"), Reason.MISTYPED_FIELD),
        (event_with(number='"1"'), Reason.MISTYPED_FIELD),
        (event_with(number="true"), Reason.MISTYPED_FIELD),
        (event_with(number="9223372036854775808"), Reason.MISTYPED_FIELD),
        (event_with(number="9" * 10_000), Reason.MISTYPED_FIELD),
        (event_with(ratio='"1"'), Reason.MISTYPED_FIELD),
        (event_with(ratio="1e999"), Reason.MISTYPED_FIELD),
        (event_with(flag="1"), Reason.MISTYPED_FIELD),
        (event_with(flag='"true"'), Reason.MISTYPED_FIELD),
        (event_with(price="12.345"), Reason.MISTYPED_FIELD),
        (event_with(price="10000000000"), Reason.MISTYPED_FIELD),
        (event_with(price="1e99999"), Reason.MISTYPED_FIELD),
        (event_with(price='"12,34"'), Reason.MISTYPED_FIELD),
        (event_with(price='"NaN"'), Reason.MISTYPED_FIELD),
        (event_with(price="true"), Reason.MISTYPED_FIELD),
        (event_with(at='"2018-04-01T00:00:00"'), Reason.MISTYPED_FIELD),
        (event_with(at='"2018-04-01"'), Reason.MISTYPED_FIELD),
        (event_with(at='"2018-02-30T00:00:00Z"'), Reason.MISTYPED_FIELD),
        (event_with(at='"2018-04-01T00:00:00+19:00"'), Reason.MISTYPED_FIELD),
        (event_with(at='"0001-01-01T00:00:00+01:00"'), Reason.MISTYPED_FIELD),
        (event_with(at="1522540800000.0"), Reason.MISTYPED_FIELD),
        (event_with(at="99999999999999999"), Reason.MISTYPED_FIELD),
        (event_with(at="true"), Reason.MISTYPED_FIELD),
    ],
)
def test_an_event_that_cannot_be_used_has_a_reason(raw: str | bytes, reason: Reason) -> None:
    """The reason is a code, the detail names the field, and both can be written as UTF-8."""
    rejection = parse_event(raw, STREAM)
    assert isinstance(rejection, Rejection)
    assert rejection.reason is reason
    assert rejection.detail.encode()
    assert len(rejection.detail) < 200


@pytest.mark.parametrize(
    ("raw", "detail"),
    [
        (b"", "the record is empty"),
        (b" \n", "the record is empty"),
        (b"[" * 995 + b"]" * 995, "it is nested deeper than 100 levels"),
        (b'{"a":' * 500 + b"1" + b"}" * 500, "it is nested deeper than 100 levels"),
        (event_with(name=json.dumps("x" * 3000)), "name has 3000 characters, more than 2048"),
        (event_with(id="1" * 3000), "id has 3000 characters, more than 2048"),
        (
            event_with(price='"1\\n\\u0000"'),
            "price is 1\\n\\x00, which is not a valid decimal(12,2): it is not a number",
        ),
        (event_with(name='"\\udc00"'), "name is \\udc00, which is not a valid string: it has half of a surrogate pair"),
    ],
)
def test_a_person_can_read_why(raw: str | bytes, detail: str) -> None:
    """Without Python's own words, and on one line."""
    assert parse_event(raw, STREAM) == Rejection(parse_event(raw, STREAM).reason, detail)  # type: ignore[union-attr]


@pytest.mark.parametrize("inner", ["[" * 99 + "]" * 99, json.dumps("[{" * 500), json.dumps("x" * 100_000)])
def test_what_nobody_declared_may_be_large(inner: str) -> None:
    """A hundred levels in all, any number of brackets within a string, and any length."""
    assert isinstance(parse_event(event_with()[:-1] + f', "more": {inner}}}', STREAM), dict)


def test_the_same_event_in_python_values_means_the_same() -> None:
    """A case file's mapping is read like its JSON, with Decimal and aware datetime besides."""
    local = datetime(2018, 4, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    values = {"id": 7, "at": local, "name": "x", "number": 1, "ratio": 0.5, "flag": True, "price": Decimal("12.34")}
    assert parse_event(values, STREAM) == parse_event(event_with(id="7"), STREAM)
    assert parse_event({**values, "price": 12.34}, STREAM) == parse_event(values, STREAM)
    rejection = parse_event({**values, "at": datetime(2018, 4, 1)}, STREAM)  # noqa: DTZ001
    assert isinstance(rejection, Rejection)
    assert rejection.reason is Reason.MISTYPED_FIELD


@given(
    st.integers(-(10**12) + 1, 10**12 - 1),
    st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**63), 2**63 - 1),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
)
def test_no_digit_is_lost_on_the_way(cents: int, at: int, ratio: float, number: int, name: str) -> None:
    """What was written as JSON is what is read, to the last digit."""
    price = Decimal(cents).scaleb(-2)
    raw = event_with(
        price=str(price),
        at=json.dumps(from_microseconds(at).isoformat()),
        ratio=repr(ratio),
        number=str(number),
        name=json.dumps(name),
    )
    parsed = parse_event(raw, STREAM)
    assert isinstance(parsed, dict)
    assert (parsed["price"], parsed["at"], parsed["number"], parsed["name"]) == (price, at, number, name)
    assert parsed["ratio"] == ratio


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=3,
)


@given(st.dictionaries(st.sampled_from(sorted(GOOD)), VALUES), st.binary(max_size=20))
def test_nothing_that_arrives_does_more_than_be_rejected(values: dict[str, Any], noise: bytes) -> None:
    """Whatever stands on the topic is a rejection, or an event that fits the stream's schema."""
    assert isinstance(parse_event(noise, STREAM), Rejection)
    for raw in (event_with(**{name: json.dumps(value) for name, value in values.items()}), values):
        parsed = parse_event(raw, STREAM)
        assert isinstance(parsed, Rejection) or pa.Table.from_pylist([parsed], STREAM.schema).num_rows == 1


@pytest.mark.parametrize(("ahead", "rejected"), [(-1, False), (60_000_000, False), (60_000_001, True)])
def test_an_event_too_far_in_the_future_is_rejected(ahead: int, rejected: bool) -> None:
    """max_future_skew after arrival is still allowed, a microsecond more is not."""
    rejection = check_skew(APRIL + ahead, APRIL, STREAM)
    assert (rejection is not None) == rejected
    assert rejection is None or rejection.reason is Reason.FUTURE_EVENT_TIME


def test_timestamps_are_utc() -> None:
    """Microseconds count from 1970 in UTC."""
    assert from_microseconds(APRIL) == datetime(2018, 4, 1, tzinfo=UTC)
