"""Draws the genuine payments and logins as NumPy columns, and converts columns to Arrow tables."""

from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nightjar.generate.population import Population
from nightjar.generate.rhythm import LOGINS, PAYMENTS, SECOND, draw_times
from nightjar.rules.streams import Stream
from nightjar.rules.types import INSTANT

# Share of payments away from home: any terminal of the country.
AWAY = 0.04
# Share of amounts that are round.
WHOLE = 0.12
# Share of logins that fail at first; the customer tries again within a minute.
MISTYPED = 0.05
# Share of logins on the move.
MOBILE = 0.2

LARGEST_AMOUNT = 2_000_000  # cents


class _Columns:
    """Columns of one length; `scenario` is int8, 0 for genuine."""

    time: NDArray[np.int64]

    @classmethod
    def joined(cls, *parts: Self) -> Self:
        """The rows of all parts, in order of time."""
        names = [column.name for column in fields(cls)]  # type: ignore[arg-type]
        columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        order = np.argsort(columns["time"], kind="stable")
        return cls(**{name: column[order] for name, column in columns.items()})


@dataclass(frozen=True)
class Payments(_Columns):
    """Payments as columns."""

    time: NDArray[np.int64]
    """Microseconds since the start."""
    customer: NDArray[np.int32]
    terminal: NDArray[np.int32]
    cents: NDArray[np.int64]
    scenario: NDArray[np.int8]
    """Of fraud; 0 for a genuine one."""


@dataclass(frozen=True)
class Logins(_Columns):
    """Logins as columns."""

    time: NDArray[np.int64]
    """Microseconds since the start."""
    customer: NDArray[np.int32]
    ip: NDArray[np.uint32]
    device: NDArray[np.int32]
    """Two per customer, then the attackers'."""
    success: NDArray[np.bool_]
    scenario: NDArray[np.int8]
    """Of fraud; 0 for a genuine one."""


def draw_payments(rng: np.random.Generator, people: Population, count: int, first_weekday: int, days: int) -> Payments:
    """Draw `count` genuine payments."""
    customer = rng.choice(people.customers, size=count, p=people.activity).astype(np.int32)
    rank = 1.0 / (1.0 + np.arange(people.nearby.shape[1]))
    near = people.nearby[customer, rng.choice(rank.size, size=count, p=rank / rank.sum())]
    anywhere = rng.integers(people.terminals, size=count, dtype=np.int32)
    cents = draw_cents(rng, people, customer)
    return Payments(
        time=draw_times(
            rng, count, peaks=PAYMENTS, clock=people.clock[customer], first_weekday=first_weekday, days=days
        ),
        customer=customer,
        terminal=np.where(rng.random(count) < AWAY, anywhere, near),
        cents=np.where(rng.random(count) < WHOLE, np.maximum(100, cents // 100 * 100), cents),
        scenario=np.zeros(count, np.int8),
    )


def draw_cents(rng: np.random.Generator, people: Population, customer: NDArray[np.int32]) -> NDArray[np.int64]:
    """Draw a typical amount for each customer: int64 cents."""
    logarithm = people.log_amount[customer] + people.log_spread[customer] * rng.standard_normal(customer.size)
    cents: NDArray[np.int64] = np.clip(np.rint(np.exp(logarithm) * 100), 50, LARGEST_AMOUNT).astype(np.int64)
    return cents


def draw_logins(rng: np.random.Generator, people: Population, count: int, first_weekday: int, days: int) -> Logins:
    """Draw about `count` genuine logins: every failed attempt is followed by another, which adds a few rows."""
    customer = rng.choice(people.customers, size=count, p=people.activity).astype(np.int32)
    mobile = (rng.random(count) < MOBILE).astype(np.int32)
    time = draw_times(rng, count, peaks=LOGINS, clock=people.clock[customer], first_weekday=first_weekday, days=days)
    success = rng.random(count) >= MISTYPED
    again = np.flatnonzero(~success)
    retry = time[again] + (rng.uniform(4.0, 60.0, again.size) * 1000).astype(np.int64) * (SECOND // 1000)
    rows = np.concatenate([np.arange(count), again])
    who, how = customer[rows], mobile[rows]
    return Logins(
        time=np.concatenate([time, retry]),
        customer=who,
        ip=people.ips[who, how],
        device=who * 2 + how,
        success=np.concatenate([success, np.ones(again.size, np.bool_)]),
        scenario=np.zeros(rows.size, np.int8),
    )


def payments_table(events: Payments, stream: Stream, start: int, scenarios: list[str], prefix: str = "") -> pa.Table:
    """The rows as declared, with `scenario` (string, null for genuine); `start` is microseconds UTC."""
    columns = {
        "transaction_id": _numbered(f"{prefix}t", events.time.size),
        "event_time": pa.array(events.time + start).cast(INSTANT),
        "customer_id": _named("c", events.customer),
        "terminal_id": _named("m", events.terminal),
        "amount": _decimals(events.cents, stream.schema.field("amount").type),
    }
    return _table(columns, stream, events.scenario, scenarios)


def logins_table(events: Logins, stream: Stream, start: int, scenarios: list[str], prefix: str = "") -> pa.Table:
    """The rows as declared, with `scenario` (string, null for genuine); `start` is microseconds UTC."""
    columns = {
        "login_id": _numbered(f"{prefix}l", events.time.size),
        "event_time": pa.array(events.time + start).cast(INSTANT),
        "customer_id": _named("c", events.customer),
        "ip": _addresses(events.ip),
        "device": _named("d", events.device),
        "status": _chosen(events.success.astype(np.int8), ["FAIL", "SUCCESS"]),
    }
    return _table(columns, stream, events.scenario, scenarios)


def _table(columns: dict[str, pa.Array], stream: Stream, scenario: NDArray[np.int8], scenarios: list[str]) -> pa.Table:
    labelled = {**columns, "scenario": _chosen(scenario, [None, *scenarios])}
    return pa.table(labelled, schema=stream.schema.append(pa.field("scenario", pa.string())))


def _numbered(begin: str, count: int) -> pa.Array:
    return _named(begin, np.arange(count, dtype=np.int32), width=9)


def _named(begin: str, number: NDArray[np.int32], width: int = 6) -> pa.Array:
    digits = np.char.zfill(np.arange(number.max(initial=0) + 1).astype(str), width)
    return _chosen(number, np.char.add(begin, digits))


def _chosen(index: NDArray[np.integer], words: object) -> pa.Array:
    return pa.array(words, pa.string()).take(pa.array(index))


def _addresses(ip: NDArray[np.uint32]) -> pa.Array:
    distinct, index = np.unique(ip, return_inverse=True)
    octets = [((distinct >> np.uint32(shift)) & np.uint32(255)).astype(str) for shift in (24, 16, 8, 0)]
    words = octets[0]
    for octet in octets[1:]:
        words = np.char.add(np.char.add(words, "."), octet)
    return _chosen(index, words)


def _decimals(scaled: NDArray[np.int64], kind: pa.DataType) -> pa.Array:
    """Scaled integers as decimals: Arrow's 128 bits are the integer and its sign."""
    words = np.stack([scaled, scaled >> 63], axis=1)
    return pa.Array.from_buffers(kind, scaled.size, [None, pa.py_buffer(np.ascontiguousarray(words))])
