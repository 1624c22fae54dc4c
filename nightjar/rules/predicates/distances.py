"""DISTANCE_KM: great-circle distances on a sphere, to the metre (S3.15).

How it works: NumPy computes the angle between two places by a formula that is well-conditioned at every distance (that
of haversines loses digits near the antipode). Its error, a tenth of a micrometre at most, could decide only where a
distance is that near to half a metre. Such distances, two of a million, are decided with 60 digits. So the result does
not depend on the last bits of a machine's sines.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal

import numpy as np
import polars as pl

# The mean radius of the Earth (IUGG), in metres.
RADIUS = Decimal("6371008.8")
# Metres of half a circumference, rounded up.
MAX_DISTANCE = 20_015_115
MAX_LATITUDE = 90.0
# Longitudes are written from -180 to 180, or from 0 to 360.
MAX_LONGITUDE = 360.0

# Metres within which the error of doubles may decide.
_UNCERTAIN = 1e-6
_DIGITS = Context(prec=60)
_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")


def distances(given: Sequence[pl.Series]) -> pl.Series:
    """The distances in metres, as Int64, between two places: columns of Float64, latitude and longitude of each.

    NULL where one of them is, or is beyond its limit. A column may have a single row instead, which stands for all.
    """
    degrees = np.broadcast_arrays(*(column.to_numpy() for column in given))  # a NULL becomes a NaN
    there = np.ones(degrees[0].shape, np.bool_)
    for values, limit in zip(degrees, (MAX_LATITUDE, MAX_LONGITUDE) * 2, strict=True):
        there &= np.abs(values) <= limit
    latitude, longitude, other_latitude, other_longitude = (np.where(there, values, 0.0) for values in degrees)
    from_, to, apart = map(np.radians, (latitude, other_latitude, other_longitude - longitude))
    north = np.cos(from_) * np.sin(to) - np.sin(from_) * np.cos(to) * np.cos(apart)
    east = np.cos(to) * np.sin(apart)
    along = np.sin(from_) * np.sin(to) + np.cos(from_) * np.cos(to) * np.cos(apart)
    metres = np.arctan2(np.hypot(north, east), along) * float(RADIUS)
    below = np.floor(metres)
    found = np.floor(metres + 0.5).astype(np.int64)
    for row in np.flatnonzero(np.abs(metres - below - 0.5) < _UNCERTAIN).tolist():
        found[row] = _decided(*(Decimal(values[row].item()) for values in degrees), below=int(below[row]))
    column = pl.Series(found)
    return column if there.all() else column.zip_with(pl.Series(there), pl.Series([None], dtype=pl.Int64))


def _decided(latitude: Decimal, longitude: Decimal, to_latitude: Decimal, to_longitude: Decimal, *, below: int) -> int:
    """Which of `below` and the next metre is nearer, by the cosine of the angle half way between them."""
    within = _DIGITS
    from_, to = (_radians(each) for each in (latitude, to_latitude))
    apart = _radians(within.subtract(to_longitude, longitude))
    quarter = within.divide(_PI, Decimal(2))
    sines = within.multiply(_cosine(within.subtract(from_, quarter)), _cosine(within.subtract(to, quarter)))
    cosines = within.multiply(within.multiply(_cosine(from_), _cosine(to)), _cosine(apart))
    half_way = _cosine(within.divide(Decimal(below) + Decimal("0.5"), RADIUS))
    return below + (within.add(sines, cosines) <= half_way)


def _radians(degrees: Decimal) -> Decimal:
    return _DIGITS.divide(_DIGITS.multiply(degrees, _PI), Decimal(180))


def _cosine(angle: Decimal) -> Decimal:
    """By its power series; the angles here are below four turns."""
    square, term, total, at = _DIGITS.multiply(angle, angle), Decimal(1), Decimal(1), 0
    while abs(term) > Decimal("1e-60"):
        at += 2
        term = _DIGITS.divide(_DIGITS.multiply(term, -square), Decimal(at * (at - 1)))
        total = _DIGITS.add(total, term)
    return total
