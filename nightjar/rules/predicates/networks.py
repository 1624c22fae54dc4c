"""IP_IN: whether an address is in one of some networks, IPv4 and IPv6 (S3.14).

How it works: an address is a number of 128 bits, that of IPv4 the one of its IPv4-mapped form (RFC 4291, 2.5.5.2), so
that an address is one however a proxy writes it. Networks are ranges of these numbers. Texts are read by the code here,
as what libraries accept differs between systems and releases; an address that was read lately is not read again.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache

import polars as pl

from nightjar.rules.predicates.coercion import Unfit

_BITS = 128
_MAPPED = 0xFFFF << 32
_IPV4_BITS = 32
_IPV6_GROUPS = 8
_GROUP_DIGITS = 4
# Characters of ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255.
_LONGEST = 45
_BYTES = {str(value): value for value in range(256)}
_DIGITS = re.compile("[0-9a-fA-F]{32}", re.ASCII)


def _ipv4(text: str) -> int | None:
    """The 32 bits of four decimal numbers without leading zeros (which some systems take for octal ones)."""
    try:
        a, b, c, d = text.split(".")
        return _BYTES[a] << 24 | _BYTES[b] << 16 | _BYTES[c] << 8 | _BYTES[d]
    except (ValueError, KeyError):
        return None


def _ipv6(text: str) -> int | None:
    """The 128 bits of a text in one of the forms of RFC 4291, 2.2, without a zone."""
    if "." in text:
        front, _, ipv4 = text.rpartition(":")
        last = _ipv4(ipv4)
        if last is None:
            return None
        text = f"{front}:{last >> 16:x}:{last & 0xFFFF:x}"
    left, gap, right = text.partition("::")
    before, after = (part.split(":") if part else [] for part in (left, right))
    missing = _IPV6_GROUPS - len(before) - len(after)
    if missing < 1 if gap else missing:
        return None
    groups = [*before, *["0"] * missing, *after]
    digits = "".join([group.rjust(_GROUP_DIGITS, "0") for group in groups])
    return int(digits, 16) if "" not in groups and _DIGITS.fullmatch(digits) else None


@lru_cache(maxsize=2**15)
def _address(text: str) -> int | None:
    if ":" in text:
        return _ipv6(text)
    found = _ipv4(text)
    return None if found is None else _MAPPED | found


def _network(text: str) -> tuple[int, int]:
    """The first and the last address of a block, or of a single address. Raises Unfit."""
    written, slash, length = text.partition("/")
    first = _address(written) if len(written) <= _LONGEST else None
    if first is None:
        what = f"{text[:60]!r} is neither an address nor a CIDR block"
        raise Unfit(what, "Write it as in '10.0.0.0/8', '2001:db8::/32' or '192.0.2.1'")
    most = _BITS if ":" in written else _IPV4_BITS
    if slash and (not length.isascii() or length not in map(str, range(most + 1))):
        raise Unfit(
            f"{text!r} has no length that a prefix can have after the slash", f"Write a number from 0 to {most}"
        )
    fixed = _BITS - most + int(length) if slash else _BITS
    size = 1 << (_BITS - fixed)
    if first % size:
        what = f"the address of {text!r} has bits beyond the first {length}"
        raise Unfit(what, f"Write its network's address, or {written!r} for the one address")
    return first, first + size - 1


class Networks:
    """Some networks. Raises Unfit if a text is neither a block nor an address."""

    def __init__(self, blocks: Sequence[str]) -> None:
        self._first: list[int] = []
        self._last: list[int] = []
        # Of two blocks that are not apart one is within the other: here it comes after it.
        for first, last in sorted(map(_network, blocks), key=lambda ends: (ends[0], -ends[1])):
            if not self._last or first > self._last[-1]:
                self._first.append(first)
                self._last.append(last)

    def holds(self, text: str) -> bool | None:
        """Whether a text is an address in one of them; None: it is no address."""
        found = _address(text) if len(text) <= _LONGEST else None
        if found is None:
            return None
        at = bisect_right(self._first, found)
        return at > 0 and found <= self._last[at - 1]

    def hold(self, texts: pl.Series) -> pl.Series:
        """The same of a column of String, as Boolean."""
        holds = self.holds
        return pl.Series([None if text is None else holds(text) for text in texts.to_list()], dtype=pl.Boolean)
