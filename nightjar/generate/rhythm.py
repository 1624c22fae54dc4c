"""Draws event times that follow the pattern of a day and a week."""

import numpy as np
from numpy.typing import NDArray

SECOND = 1_000_000  # microseconds
DAY_SECONDS = 86_400

# The day's peaks as (hour, width in hours, weight), on top of an even base load.
PAYMENTS = ((9.0, 1.5, 0.25), (13.0, 1.8, 0.45), (19.0, 2.0, 0.6))
LOGINS = ((8.0, 1.2, 0.4), (12.5, 2.0, 0.3), (21.0, 1.8, 0.7))
_BASE_LOAD = 0.06

# Monday to Sunday.
_WEEKDAY = np.array([0.95, 0.95, 1.0, 1.0, 1.15, 1.2, 0.75])


def draw_times(
    rng: np.random.Generator,
    count: int,
    *,
    peaks: tuple[tuple[float, float, float], ...],
    clock: NDArray[np.float64],
    first_weekday: int,
    days: int,
) -> NDArray[np.int64]:
    """Microseconds since the start, to the millisecond, in no order: int64 [count].

    `clock` is each event's shift of the day in seconds; times shifted past one end of the span wrap around to the
    other.
    """
    weights = _WEEKDAY[(first_weekday + np.arange(days)) % 7]
    day = rng.choice(days, size=count, p=weights / weights.sum())
    minute = np.arange(24 * 60) / 60.0
    density = np.full(minute.size, _BASE_LOAD)
    for hour, width, weight in peaks:
        away = np.abs(minute - hour)
        density += weight * np.exp(-0.5 * (np.minimum(away, 24 - away) / width) ** 2)
    chosen = np.searchsorted(np.cumsum(density) / density.sum(), rng.random(count))
    seconds = day * DAY_SECONDS + chosen * 60 + rng.random(count) * 60 + clock
    milliseconds = (seconds % (days * DAY_SECONDS) * 1000).astype(np.int64)
    return milliseconds * 1000
