"""IP_IN: which texts are addresses, and which networks hold them."""

from __future__ import annotations

import ipaddress

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar.rules.errors import PredicateError
from nightjar.rules.predicates import check_predicate, compile_predicate, truths
from nightjar.rules.predicates.networks import Networks
from nightjar.rules.types import STRING
from tests.support.exact_evaluator import _address, _network

COLUMNS = {"ip": STRING, "other": STRING}
ADDRESSES = st.one_of(
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).map(str),
    st.ip_addresses(v=6).map(lambda address: address.exploded.upper()),
    st.ip_addresses(v=4).map(lambda address: f"::ffff:{address}"),
    st.integers(0, 2**20).map(lambda value: str(ipaddress.IPv6Address(value))),
    st.integers(0, 2**20).map(lambda value: str(ipaddress.IPv4Address(value))),
)
# Nearly addresses.
_PIECES = [":", "::", ".", "0", "1", "01", "255", "256", "ffff", "12345", "g", " ", "%1", "/8"]
TEXTS = st.lists(st.sampled_from(_PIECES)).map("".join)


def _around(address: ipaddress.IPv4Address | ipaddress.IPv6Address, bits: int) -> str:
    return str(ipaddress.ip_network((address, bits), strict=False))


NETWORKS = st.one_of(
    st.builds(_around, st.ip_addresses(v=4), st.integers(0, 32)),
    st.builds(_around, st.ip_addresses(v=6), st.integers(0, 128)),
    st.sampled_from(["0.0.0.0/12", "::/108", "::ffff:0.0.0.0/108", "0.0.0.7", "::7", "::/0", "0.0.0.0/0"]),
)


@given(ADDRESSES | TEXTS, st.lists(NETWORKS, min_size=1, max_size=5))
def test_networks_hold_what_the_standard_library_says(text: str, networks: list[str]) -> None:
    """Of one space of addresses, in which those of IPv4 are mapped."""
    address = _address(text)
    expected = None if address is None else any(address in _network(each) for each in networks)
    assert Networks(networks).holds(text) is expected


@given(TEXTS)
def test_a_text_is_an_address_if_the_standard_library_reads_it(text: str) -> None:
    assert (Networks(["::/0"]).holds(text) is None) == (_address(text) is None)


@pytest.mark.parametrize(
    ("ip", "inside"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("::FFFF:0a01:0203", True),
        ("11.1.2.3", False),
        ("2001:db8:ffff::1", True),
        ("2001:db9::1", False),
        ("192.0.2.1", True),
        ("192.0.2.2", False),
        ("010.1.2.3", None),
        ("10.1.2", None),
        ("10.1.2.3 ", None),
        ("10.1.2.3:443", None),
        ("fe80::1%eth0", None),
        ("unknown", None),
        ("", None),
        ("1" * 46, None),
        (None, None),
    ],
)
def test_an_address_is_in_a_block_or_not_and_other_texts_are_neither(ip: str | None, inside: bool | None) -> None:
    """So NOT IP_IN holds for addresses only."""
    blocks = "'10.0.0.0/8', '2001:db8::/32', '192.0.2.1'"
    texts = [f"IP_IN(ip, {blocks})", f"NOT IP_IN(ip, {blocks})", f"IP_IN(ip, {blocks}) IS NULL"]
    predicates = [compile_predicate(text, COLUMNS) for text in texts]
    found = [bool(holds[0]) for holds in truths(predicates, {"ip": pl.Series([ip], dtype=pl.String)}, 1)]
    assert found == [inside is True, inside is False, inside is None]


@pytest.mark.parametrize(
    ("blocks", "what", "remedy"),
    [
        ("'10.0.0.1/8'", "the address of '10.0.0.1/8' has bits beyond the first 8", "'10.0.0.1' for the one address"),
        ("'2001:db8::1/32'", "has bits beyond the first 32", "its network's address"),
        ("'10.0.0/8'", "'10.0.0/8' is neither an address nor a CIDR block", "'2001:db8::/32'"),
        ("'10.0.0.0/33'", "has no length that a prefix can have after the slash", "from 0 to 32"),
        ("'::/129'", "has no length that a prefix can have after the slash", "from 0 to 128"),
        ("'10.0.0.0/'", "has no length that a prefix can have after the slash", "from 0 to 32"),
        ("'10.0.0.0/08'", "has no length that a prefix can have after the slash", "from 0 to 32"),
        ("'10.0.0.0/255.0.0.0'", "has no length that a prefix can have after the slash", "from 0 to 32"),
        ("'office'", "is neither an address nor a CIDR block", "'10.0.0.0/8'"),
        ("'10.0.0.0/8', other", "takes networks in quotes", "IP_IN(ip, '10.0.0.0/8')"),
        ("'10.0.0.0/8', 5", "takes networks in quotes", "IP_IN(ip, '10.0.0.0/8')"),
    ],
)
def test_a_block_is_checked_when_the_rule_is(blocks: str, what: str, remedy: str) -> None:
    with pytest.raises(PredicateError) as refused:
        check_predicate(f"IP_IN(ip, {blocks})", COLUMNS)
    (problem,) = refused.value.problems
    assert what in problem.message
    assert remedy in problem.remedy
