"""Draws the fraud: three scenarios, each as a number of episodes, with their labels."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from nightjar.generate.events import LARGEST_AMOUNT, Logins, Payments, draw_cents
from nightjar.generate.population import FIRST_STRANGE_IP, Population

_MINUTE = 60_000  # milliseconds
_HOUR = 60 * _MINUTE


class Scenario(StrEnum):
    """The kind of fraud, as labelled in the `scenario` column."""

    CLONED_CARD = "cloned_card"
    COMPROMISED_TERMINAL = "compromised_terminal"
    ACCOUNT_TAKEOVER = "account_takeover"


SCENARIOS = list(Scenario)

# Average payments per episode, to convert a share of fraud to a number of episodes.
_USUAL_PAYMENTS = {Scenario.CLONED_CARD: 8, Scenario.COMPROMISED_TERMINAL: 40, Scenario.ACCOUNT_TAKEOVER: 3.5}


@dataclass(frozen=True)
class Fraud:
    """The events of all episodes."""

    payments: Payments
    logins: Logins


def draw_fraud(rng: np.random.Generator, people: Population, payments: float, days: int) -> Fraud:
    """Draw about `payments` fraudulent payments, a third per scenario; if 5 or more, each scenario occurs."""
    span = days * 24 * _HOUR
    least = 1 if payments >= 5 else 0
    counts = {scenario: max(least, round(payments / 3 / usual)) for scenario, usual in _USUAL_PAYMENTS.items()}
    cloned = _cloned_cards(rng, people, counts[Scenario.CLONED_CARD], span)
    compromised = _compromised_terminals(rng, people, counts[Scenario.COMPROMISED_TERMINAL], span)
    taken, logins = _account_takeovers(rng, people, counts[Scenario.ACCOUNT_TAKEOVER], span)
    return Fraud(Payments.joined(cloned, compromised, taken), logins)


def _cloned_cards(rng: np.random.Generator, people: Population, episodes: int, span: int) -> Payments:
    """Copied cards used in a burst: 5 to 11 payments within 10 to 40 minutes at terminals all over the country."""
    sizes = rng.integers(5, 12, episodes)
    row = np.repeat(np.arange(episodes), sizes)
    length = rng.integers(10 * _MINUTE, 40 * _MINUTE, episodes)
    customer = _people(rng, people, episodes)[row]
    cents = draw_cents(rng, people, customer) * rng.integers(2, 5, row.size)
    return Payments(
        time=_within(rng, row, _begins(rng, episodes, span), length),
        customer=customer,
        terminal=rng.integers(people.terminals, size=row.size, dtype=np.int32),
        cents=np.minimum(cents, LARGEST_AMOUNT),
        scenario=_label(Scenario.CLONED_CARD, row.size),
    )


def _compromised_terminals(rng: np.random.Generator, people: Population, episodes: int, span: int) -> Payments:
    """Terminals charging stolen cards: 25 to 54 payments of just under 100 each, by many customers in 1 to 4 hours."""
    sizes = rng.integers(25, 55, episodes)
    row = np.repeat(np.arange(episodes), sizes)
    length = rng.integers(_HOUR, 4 * _HOUR, episodes)
    terminal = rng.integers(people.terminals, size=episodes, dtype=np.int32)
    return Payments(
        time=_within(rng, row, _begins(rng, episodes, span), length),
        customer=_people(rng, people, row.size),
        terminal=terminal[row],
        cents=rng.integers(80_00, 100_00, row.size),
        scenario=_label(Scenario.COMPROMISED_TERMINAL, row.size),
    )


def _account_takeovers(
    rng: np.random.Generator, people: Population, episodes: int, span: int
) -> tuple[Payments, Logins]:
    """Attackers guess a password from a new address and device, then spend.

    6 to 14 failures within 1 to 5 minutes, a success seconds later, then 2 to 5 payments of 6 to 15 times the typical
    amount within half an hour.
    """
    customer = _people(rng, people, episodes)
    begin = _begins(rng, episodes, span)
    guessing = rng.integers(_MINUTE, 5 * _MINUTE, episodes)
    failures = rng.integers(6, 15, episodes)
    row = np.repeat(np.arange(episodes), failures)
    inside = begin + guessing + rng.integers(2000, 20_000, episodes)
    who = np.concatenate([row, np.arange(episodes)])
    logins = Logins(
        time=np.concatenate([_within(rng, row, begin, guessing), inside * 1000]),
        customer=customer[who],
        ip=(FIRST_STRANGE_IP + who).astype(np.uint32),
        device=(2 * people.customers + who).astype(np.int32),
        success=np.concatenate([np.zeros(row.size, np.bool_), np.ones(episodes, np.bool_)]),
        scenario=_label(Scenario.ACCOUNT_TAKEOVER, who.size),
    )
    spending = np.repeat(np.arange(episodes), rng.integers(2, 6, episodes))
    spender = customer[spending]
    cents = draw_cents(rng, people, spender) * rng.integers(6, 16, spending.size)
    payments = Payments(
        time=_within(rng, spending, inside, np.full(episodes, 30 * _MINUTE)),
        customer=spender,
        terminal=rng.integers(people.terminals, size=spending.size, dtype=np.int32),
        cents=np.minimum(cents, LARGEST_AMOUNT),
        scenario=_label(Scenario.ACCOUNT_TAKEOVER, spending.size),
    )
    return payments, logins


def _people(rng: np.random.Generator, people: Population, count: int) -> NDArray[np.int32]:
    return rng.choice(people.customers, size=count, p=people.activity).astype(np.int32)


def _begins(rng: np.random.Generator, episodes: int, span: int) -> NDArray[np.int64]:
    # The longest episode lasts 4 hours, so none runs past the end.
    return rng.integers(0, span - 4 * _HOUR, episodes)


def _within(
    rng: np.random.Generator, row: NDArray[np.integer], begin: NDArray[np.int64], length: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Event times in microseconds, spread evenly over their episode; `begin`, `length`: milliseconds per episode."""
    happened: NDArray[np.int64] = (begin[row] + (rng.random(row.size) * length[row]).astype(np.int64)) * 1000
    return happened


def _label(scenario: Scenario, count: int) -> NDArray[np.int8]:
    return np.full(count, SCENARIOS.index(scenario) + 1, np.int8)
