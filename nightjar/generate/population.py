"""Draws the population: customers with a home, habits and devices, and terminals with a location."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# People shop at a handful of places near home; further choices hardly change what a rule sees.
NEARBY = 12

# How many terminals around a customer on the space-filling curve are compared by true distance.
_CANDIDATES = 96

_CUSTOMERS_A_CITY = 400
_CITY_SPREAD = 0.01  # of the country's side

FIRST_HOME_IP = (10 << 24) + 1  # 10.0.0.1: customers have private addresses
FIRST_STRANGE_IP = (198 << 24) + (18 << 16) + 1  # 198.18.0.1: attackers have addresses of a range reserved for tests


@dataclass(frozen=True)
class Population:
    """Columns with one row per customer (the index is the customer's number)."""

    nearby: NDArray[np.int32]
    """[customers, ≤ NEARBY]: numbers of terminals, the nearest first."""
    activity: NDArray[np.float64]
    """Share of all payments; sums to 1."""
    log_amount: NDArray[np.float64]
    """Mean of the logarithm of an amount."""
    log_spread: NDArray[np.float64]
    """Standard deviation of the logarithm of an amount."""
    clock: NDArray[np.float64]
    """Seconds by which the customer's day is shifted."""
    ips: NDArray[np.uint32]
    """[customers, 2]: at home and mobile."""
    terminals: int
    """How many there are."""

    @property
    def customers(self) -> int:
        """Number of customers."""
        return len(self.activity)


def draw_population(rng: np.random.Generator, customers: int, terminals: int) -> Population:
    """Draw customers and terminals, spread over the same cities of a square country."""
    cities = rng.random((max(1, customers // _CUSTOMERS_A_CITY), 2))
    homes = _around(rng, cities, customers)
    places = _around(rng, cities, terminals)
    activity = rng.gamma(2.0, size=customers)
    ips = np.arange(2 * customers, dtype=np.uint32).reshape(customers, 2) + np.uint32(FIRST_HOME_IP)
    return Population(
        nearby=_nearest(homes, places),
        activity=activity / activity.sum(),
        log_amount=rng.normal(3.2, 0.6, customers),  # half of the customers usually pay less than 25
        log_spread=rng.uniform(0.4, 0.9, customers),
        clock=rng.normal(0.0, 2700.0, customers),
        ips=ips,
        terminals=terminals,
    )


def _around(rng: np.random.Generator, cities: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    centres = cities[rng.integers(len(cities), size=count)]
    return np.clip(centres + rng.normal(0.0, _CITY_SPREAD, (count, 2)), 0.0, 1.0)


def _nearest(homes: NDArray[np.float64], places: NDArray[np.float64]) -> NDArray[np.int32]:
    """The approximately nearest terminals of each home: candidates are neighbours on a space-filling (Morton) curve.

    Exact distances between all pairs would cost customers x terminals; this costs a sort.
    """
    order = np.argsort(_morton(places), kind="stable")
    window = min(_CANDIDATES, len(places))
    first = np.searchsorted(_morton(places)[order], _morton(homes)) - window // 2
    rows = np.clip(first, 0, len(places) - window)[:, None] + np.arange(window)
    nearest = np.empty((len(homes), min(NEARBY, window)), np.int32)
    step = 50_000  # customers at once: bounds the memory of the distances
    for begin in range(0, len(homes), step):
        part = slice(begin, begin + step)
        candidates = order[rows[part]]
        distance = ((places[candidates] - homes[part, None, :]) ** 2).sum(axis=2)
        closest = np.argsort(distance, axis=1, kind="stable")[:, : nearest.shape[1]]
        nearest[part] = np.take_along_axis(candidates, closest, axis=1)
    return nearest


def _morton(points: NDArray[np.float64]) -> NDArray[np.uint64]:
    grid = (points * 0xFFFF).astype(np.uint64)
    spread = grid
    for shift, mask in ((8, 0x00FF00FF), (4, 0x0F0F0F0F), (2, 0x33333333), (1, 0x55555555)):
        spread = (spread | (spread << np.uint64(shift))) & np.uint64(mask)
    return spread[:, 0] | (spread[:, 1] << np.uint64(1))
