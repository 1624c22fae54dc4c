"""Columns of integers in one pass."""

from __future__ import annotations

from nightjar.rules.engine.compiled import kernel


@kernel
def least(values):
    """The least of some integers, and whether they are in ascending order."""
    found, is_sorted = values[0], True
    for i in range(1, len(values)):
        is_sorted &= values[i - 1] <= values[i]
        found = min(found, values[i])
    return found, is_sorted


@kernel
def write(values, held):
    """Write int64 values to an array of int32; returns whether all fit."""
    fit = True
    for i in range(len(values)):
        held[i] = values[i]
        fit &= held[i] == values[i]
    return fit


@kernel
def latest(arrival, times, first, last):
    """The latest arrival and the latest event time from `first` to below `last`."""
    arrived, happened = arrival[first], times[first]
    for i in range(first + 1, last):
        arrived = max(arrived, arrival[i])
        happened = max(happened, times[i])
    return arrived, happened
