"""Measures: what a rule computes over an event's window, as written (`{sum: amount, over: 1h}`) and as held."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_serializer, model_validator

from rules.durations import MICROSECONDS, Duration, format_duration
from rules.errors import shortened
from rules.types import DOUBLE, INT64, STRING, FieldType, Kind

# The state of a group lives as long as its widest window; a year and a month answers any yearly question.
MAX_OVER = 400 * MICROSECONDS["d"]
# Fields that make a group, or that narrow a window to one value of each.
MAX_FIELDS = 8


class Function(StrEnum):
    """The aggregates, by their keys in a rule."""

    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"
    STDDEV = "stddev"
    COUNT_DISTINCT = "count_distinct"
    FIRST = "first"
    LAST = "last"
    VALUES = "values"


_NUMBERS = frozenset({Kind.INT64, Kind.DOUBLE, Kind.DECIMAL})
_ORDERED = _NUMBERS | {Kind.TIMESTAMP}
# Functions that are not listed take fields of any type.
_ARGUMENTS = {
    Function.SUM: _NUMBERS,
    Function.AVG: _NUMBERS,
    Function.STDDEV: _NUMBERS,
    Function.MIN: _ORDERED,
    Function.MAX: _ORDERED,
    # a double has several spellings, and two that look alike may differ
    Function.VALUES: frozenset(Kind) - {Kind.DOUBLE},
}
# What `values` lists: so many, with so many characters each. The longest list is shorter than the longest string.
MOST_LISTED = 10
MAX_LISTED = 100


def accepted_kinds(function: Function) -> frozenset[Kind]:
    """The kinds of fields a function takes."""
    return _ARGUMENTS.get(function, frozenset(Kind))


def result_type(function: Function, field_type: FieldType | None) -> FieldType:
    """The type of a measure over a field of a type it accepts; `field_type` is None for `count: "*"`."""
    if field_type is None or function in (Function.COUNT, Function.COUNT_DISTINCT):
        return INT64
    if function in (Function.AVG, Function.STDDEV):
        return DOUBLE
    if function is Function.VALUES:
        return STRING
    if function is Function.SUM and field_type.kind is Kind.DECIMAL:
        # 64 bits hold more than the 18 digits that a field may declare
        return FieldType(Kind.DECIMAL, 19, field_type.scale)
    return field_type


class Measure(BaseModel):
    """One measure. `field` is None for `count: "*"`; `over` is the window's length in microseconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    function: Function
    field: str | None
    over: Annotated[
        Duration,
        Field(
            description="Length of the window: `500ms`, `10s`, `3m`, `1h`, `90d`; at most "
            f"{format_duration(MAX_OVER)}. Both ends are included."
        ),
    ]
    where: Annotated[str | None, Field(description="Only events that meet it count.")] = None
    per: Annotated[
        tuple[str, ...],
        Field(
            max_length=MAX_FIELDS,
            description="`[field]`: only events count that have the same value of this field as the current one; at "
            f"most {MAX_FIELDS} fields.",
        ),
    ] = ()
    excluding_current: Annotated[
        bool, Field(strict=True, description="`true`: the current event itself does not count.")
    ] = False
    since: Annotated[
        str | None, Field(description="Only events after the latest earlier event that meets it count.")
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _from_written_form(cls, written: Any) -> Any:
        """`{sum: amount, …}` as `{function: sum, field: amount, …}`."""
        if not isinstance(written, Mapping):
            return written
        for held in ("function", "field"):
            if held in written:
                raise ValueError(f"{held} is not an option of a measure. Write it as in {{sum: amount, over: 1h}}")
        named = [key for key in written if key in set(Function)]
        if len(named) != 1:
            known = ", ".join(Function)
            others = [str(key) for key in written if key not in cls.model_fields]
            wrong = f"has several functions: {', '.join(named)}" if named else "has no function"
            if others and not named:
                wrong = f"has no function: there is none called {shortened(others[0], 60)!r}"
            raise ValueError(f"{wrong}. A measure has exactly one of {known}, as in {{sum: amount, over: 1h}}")
        field = written[named[0]]
        if field == "*":
            if named[0] != Function.COUNT:
                raise ValueError(f"{named[0]} of * has no meaning. Name a field; only count takes *")
            field = None
        elif not isinstance(field, str):
            raise ValueError(f"{named[0]} of {field!r} has no meaning. Name a field, as in {named[0]}: amount")
        rest = {key: value for key, value in written.items() if key != named[0]}
        return {"function": named[0], "field": field, **rest}

    @field_validator("over")
    @classmethod
    def _bounded(cls, over: int) -> int:
        if not 0 < over <= MAX_OVER:
            raise ValueError(
                f"{format_duration(over)} is no window. It is longer than 0 and at most {format_duration(MAX_OVER)}"
            )
        return over

    @model_serializer
    def _written_form(self) -> dict[str, Any]:
        written: dict[str, Any] = {
            self.function.value: "*" if self.field is None else self.field,
            "over": format_duration(self.over),
        }
        if self.where is not None:
            written["where"] = self.where
        if self.per:
            written["per"] = list(self.per)
        if self.excluding_current:
            written["excluding_current"] = True
        if self.since is not None:
            written["since"] = self.since
        return written
