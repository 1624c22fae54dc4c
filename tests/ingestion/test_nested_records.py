"""Records whose fields stand anywhere, with times as they are written: by columns as by `parse_event`."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar.formats.records import Records
from nightjar.ingestion.parsing import Parsed, parse_columns
from nightjar.rules.events import Reason, Rejection, check_skew, parse_event
from nightjar.rules.streams import Stream
from tests.support.nested_stream import DERIVED, NESTED

ARRIVAL = 1_767_614_400_000_000  # 2026-01-05T12:00:00Z, µs
# Leaves are JSON texts.
GOOD: dict[str, Any] = {
    "meta": {"id": '"e1"', "times": ["0", "1767614400.25"]},
    "user.name": {"first": '"ann"', "last": '"lee"'},
    "payment": {"amount": {"value": "12.50", "currency": '"EUR"'}},
    "net/gross é": {"x/y (%)": "0.25"},
    "prices": ["1.5", "2.25"],
    "items": [{"sku": '"a1"'}, {"sku": '"a2"'}],
    "local": '"05/01/2026 13:00:00"',
    "@timestamp": "1767614400000000001",
    "day": "20260105",
    "berlin": '"2026-01-05T13:00:00"',
    "extra": {"id": '"other"'},
}
ODD = ["null", "{}", "[]", "[null]", '{"a": 1}', '"x"', '""', "true", "0", "-0", "1e3", "12.3400000000000000000001"]
ODD += ["1767614400", "1767614400.5", '"1767614400"', '"1767614400.5"', "1.7676144e9", "1767614400000", "1e999999"]
ODD += ["123456789012345678901234567890", "9" * 400, "-9223372036854775809", "253402300800", "0.1e-5", "1E400"]
ODD += ['"2026-01-05T12:00:00Z"', '"2026-01-05T12:00:00"', '"2026-03-29T02:30:00"', '"29/03/2026 02:30:00"']
ODD += ['"31/02/2026 00:00:00"', '"20260105"', '"2026-01-05"', '"\\ud800"', '"05\\u002f01/2026 13:00:00"']


def text(node: Any) -> str:
    if isinstance(node, dict):
        return (
            "{"
            + ", ".join(f"{json.dumps(key, ensure_ascii=False)}: {text(value)}" for key, value in node.items())
            + "}"
        )
    return f"[{', '.join(map(text, node))}]" if isinstance(node, list) else str(node)


def places(node: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values of a record, inner ones too."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path for key, value in items for path in [(*before, key), *places(value, (*before, key))]]


def changed(node: Any, path: tuple[Any, ...], value: str | None) -> Any:
    """A copy with another text there, or without it."""
    copy = {**node} if isinstance(node, dict) else [*node]
    if len(path) > 1:
        copy[path[0]] = changed(copy[path[0]], path[1:], value)
    elif value is None:
        del copy[path[0]]
    else:
        copy[path[0]] = value
    return copy


PLACES = places(GOOD)
ALL = [GOOD, *(changed(GOOD, path, value) for path in PLACES for value in [None, *ODD])]


def compared(values: list[bytes], stream: Stream = NESTED) -> dict[str, int]:
    """What became of the records, which both parsers make alike."""
    parsed = parse_columns(Records(pa.array(values, pa.binary()), pa.repeat(ARRIVAL, len(values))), stream)
    found: dict[int, Any] = {**dict(parsed.rejected), **_events(parsed, stream)}
    wanted = {}
    for row, value in enumerate(values):
        event = parse_event(value, stream)
        wanted[row] = event if isinstance(event, Rejection) else check_skew(event["at"], ARRIVAL, stream) or event
    assert {row: (values[row], made, wanted[row]) for row, made in found.items() if made != wanted[row]} == {}
    assert found.keys() == wanted.keys()
    return {"events": len(parsed.rows), "rejected": len(parsed.rejected)}


def _events(parsed: Parsed, stream: Stream) -> dict[int, dict[str, Any]]:
    assert parsed.events.schema == stream.schema
    columns = {
        name: (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
        for name, column in zip(stream.fields, parsed.events.columns, strict=True)
    }
    return {row: {name: of[at] for name, of in columns.items()} for at, row in enumerate(parsed.rows.tolist())}


def test_an_event_is_where_its_fields_are_declared() -> None:
    event = parse_event(text(GOOD), NESTED)
    assert isinstance(event, dict)
    assert {name: str(value) for name, value in event.items()} == {
        "id": "e1",
        "at": str(ARRIVAL + 250_000),
        "who": "ann",
        "amount": "12.50",
        "second": "2.25",
        "fee": "0.25",
        "sku": "a1",
        "local": str(ARRIVAL),
        "logged": str(ARRIVAL),
        "day": str(ARRIVAL - 12 * 3_600_000_000),
        "berlin": str(ARRIVAL),
    }


@pytest.mark.parametrize("stream", [NESTED, DERIVED], ids=lambda stream: stream.name)
def test_columns_and_parse_event_agree_whatever_stands_anywhere(stream: Stream) -> None:
    counts = compared([text(each).encode() for each in ALL], stream)
    assert min(counts.values()) > len(ALL) // 4, "neither all good nor all bad"


def test_a_key_may_be_written_with_escapes() -> None:
    records = [text(changed(GOOD, ("net/gross é", "x/y (%)"), value)) for value in ODD]
    assert compared([record.replace("x/", "x\\/").encode() for record in records])["events"]
    assert compared([record.replace("x/y", "x\\u002fy").encode() for record in records])["events"]


@given(st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(ODD)), min_size=1, max_size=6))
def test_several_odd_values_are_alike_too(changes: list[tuple[tuple[Any, ...], str]]) -> None:
    record = GOOD
    for path, value in changes:
        if path in places(record):
            record = changed(record, path, value)
    compared([text(GOOD).encode(), text(record).encode()])


def test_numbers_that_hash_alike_take_no_time() -> None:
    """All multiples of 2**61 - 1 have one hash, so anybody could slow a table of them down."""
    modulus = 2**61 - 1
    records = [text(changed(GOOD, ("@timestamp",), str(modulus * number))).encode() for number in range(1, 20_000)]
    assert compared(records)["rejected"] > 19_000


def test_derived_fields_follow_from_the_others() -> None:
    event = parse_event(text(GOOD), DERIVED)
    assert isinstance(event, dict)
    assert {name: str(event[name]) for name in DERIVED.derived} == {
        "payer": "ann",
        "hour": "13",
        "doubled": "25.00",
        "share": "0.18",
        "is_large": "True",
        "seconds": "0.250000",
        "earliest": str(ARRIVAL - 12 * 3_600_000_000),
    }
    assert list(event) == list(DERIVED.fields)


def test_plain_records_are_read_by_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nightjar.ingestion.parsing.recorded", lambda *_: pytest.fail("one was read again"))
    others = [(("meta", "times", 1), "1767614400"), (("items",), None), (("payment", "amount", "value"), '"7.25"')]
    values = [text(GOOD), *(text(changed(GOOD, path, value)) for path, value in others)]
    records = Records(pa.array([value.encode() for value in values], pa.binary()), pa.repeat(ARRIVAL, 4))
    parsed = parse_columns(records, NESTED)
    assert parsed.rows.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("path", "value", "reason", "detail"),
    [
        (("meta",), None, Reason.NO_ID, "id (meta.id) is absent, null or empty"),
        (("meta", "times"), "[5]", Reason.MISSING_FIELD, "at (meta.times[1]) is absent"),
        (("payment", "amount"), "5", Reason.MISTYPED_FIELD, "amount (payment.amount.value): payment.amount is not an"),
        (("user.name",), "null", None, ""),
        (("payment",), None, Reason.MISSING_FIELD, "amount (payment.amount.value) is absent"),
        (("prices",), '{"1": 5}', Reason.MISTYPED_FIELD, "second (prices[1]): prices is not a list"),
        (("local",), '"5.1.2026"', Reason.MISTYPED_FIELD, "write it like %d/%m/%Y %H:%M:%S"),
        (("local",), '"29/03/2026 02:30:00"', Reason.MISTYPED_FIELD, "no calendar has it, or its zone changes clocks"),
        (("meta", "times", 1), '"noon"', Reason.MISTYPED_FIELD, "write a number of s since 1970"),
        (("berlin",), '"noon"', Reason.MISTYPED_FIELD, "berlin is a value that is not shown"),
        (("meta", "times", 1), "1767614400000", Reason.MISTYPED_FIELD, "at (meta.times[1]) is 1767614400000"),
    ],
)
def test_the_reason_names_field_and_place(
    path: tuple[Any, ...], value: str | None, reason: Reason | None, detail: str
) -> None:
    found = parse_event(text(changed(GOOD, path, value)), NESTED)
    if reason is None:
        assert isinstance(found, dict)
        return
    assert isinstance(found, Rejection)
    assert found.reason is reason
    assert detail in found.detail
