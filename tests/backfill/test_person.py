"""How values are recognised as a person's."""

import json

import pytest

from nightjar.backfill.erasure.person import Person
from nightjar.backfill.inputs.forgotten import mark_of
from nightjar.rules.field_paths import FieldPath
from nightjar.rules.masking import MASK

ANN = Person({"customer_id": ("C12", "O'Brien & Søn")})


@pytest.mark.parametrize(
    ("record", "is_theirs"),
    [
        (json.dumps({"customer_id": "C12"}).encode(), True),
        (json.dumps({"customer_id": "O'Brien & Søn"}).encode(), True),
        (json.dumps({"customer_id": "C123", "note": "C12"}).encode(), False),
        (json.dumps({"group": {"customer_id": "C1"}, "text": "C12"}).encode(), True),
        (b'{"customer_id": "C12", ', True),
        (b'{"customer_id": "C123", ', False),
        (b"\xff C12 \xfe", True),
        (b"[" * 100_000, False),
    ],
)
def test_a_record_is_theirs_by_its_key_or_any_value(record: bytes, is_theirs: bool) -> None:
    """Whole values only; what cannot be parsed is searched as text."""
    assert ANN.is_about(record) is is_theirs


def test_a_record_may_have_the_value_at_another_place_than_the_field_s_name() -> None:
    """Something else may stand at the key of that name."""
    record = json.dumps({"customer_id": {"kind": "card"}, "payment": {"customer": "C12"}}).encode()
    places = {"customer_id": [FieldPath.parse("payment.customer")]}
    assert ANN.is_about(record, places)
    assert not ANN.is_about(record.replace(b"C12", b"C123"), places)
    others = json.dumps({"payment": {"customer": "C2"}, "referrer": "C12", "customer_id": "C12"}).encode()
    assert not ANN.is_about(others, places), "another person's record that names them"


def test_values_are_masked_in_measures_and_text() -> None:
    """As a whole value, within a list of values (S2.4), and between other characters in text."""
    measures = '{"n":1,"all":"C1, C12, C123","last":"C12","about":"is C12"}'
    assert json.loads(ANN.masked_json(measures)) == {
        "n": 1,
        "all": f"C1, {MASK}, C123",
        "last": MASK,
        "about": "is C12",
    }
    assert ANN.masked_json('{"n": 1}') == '{"n": 1}', "as it was"
    assert ANN.masked_in("C12: C123, (C12) and e9", frozenset({"e9"})) == f"{MASK}: C123, ({MASK}) and {MASK}"


def test_a_mark_is_shared_by_many_groups() -> None:
    """It recognises a group, whoever wrote its JSON, and does not give it away."""
    assert mark_of('{"customer_id": "C12"}') == mark_of('{"customer_id":"C12"}')
    marks = [mark_of(json.dumps({"customer_id": f"C{number}"})) for number in range(20_000)]
    assert max(marks) < 4096
    assert len(set(marks)) > 4000
