"""When things happen: the course of a day, and of a week."""

import numpy as np
from numpy.typing import NDArray

SECOND = 1_000_000  # microseconds
DAY_SECONDS = 86_400

# (hour, width in hours, weight) of the day's swells over an even trickle.
PAYMENTS = ((9.0, 1.5, 0.25), (13.0, 1.8, 0.45), (19.0, 2.0, 0.6))
LOGINS = ((8.0, 1.2, 0.4), (12.5, 2.0, 0.3), (21.0, 1.8, 0.7))
_TRICKLE = 0.06

# Monday to Sunday.
_WEEKDAY = np.array([0.95, 0.95, 1.0, 1.0, 1.15, 1.2, 0.75])


def draw_times(
    rng: np.random.Generator,
    count: int,
    *,
    swells: tuple[tuple[float, float, float], ...],
    clock: NDArray[np.float64],
    first_weekday: int,
    days: int,
) -> NDArray[np.int64]:
    """Microseconds since the start, to the millisecond, in no order: int64 [count].

    `clock` is each event's shift of the day in seconds; what a shift carries over an end of the span comes in at the
    other.
    """
    weights = _WEEKDAY[(first_weekday + np.arange(days)) % 7]
    day = rng.choice(days, size=count, p=weights / weights.sum())
    minute = np.arange(24 * 60) / 60.0
    density = np.full(minute.size, _TRICKLE)
    for hour, width, weight in swells:
        away = np.abs(minute - hour)
        density += weight * np.exp(-0.5 * (np.minimum(away, 24 - away) / width) ** 2)
    chosen = np.searchsorted(np.cumsum(density) / density.sum(), rng.random(count))
    seconds = day * DAY_SECONDS + chosen * 60 + rng.random(count) * 60 + clock
    milliseconds = (seconds % (days * DAY_SECONDS) * 1000).astype(np.int64)
    return milliseconds * 1000
