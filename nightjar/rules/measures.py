"""Measures: what a rule computes over an event's window, written as `{sum: amount, over: 1h}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_serializer, model_validator

from nightjar.rules.calendars import Calendar
from nightjar.rules.durations import MICROSECONDS, Duration, format_duration
from nightjar.rules.errors import shortened
from nightjar.rules.functions import WHOLE, Function
from nightjar.rules.names import RULE_ID, TAG
from nightjar.rules.predicates.zones import is_zone

# A group's state is kept for its widest window; a year and a month covers any yearly question.
MAX_OVER = 400 * MICROSECONDS["d"]
# An episode depends on the events of so many of its lengths (S12.3).
EPISODE_REACH = 4
# Violations before such multiples of a rule's widest window are ignored (S13.3), so that its measures depend on the
# events of that many.
RESET_CELL = 2
RESET_REACH = 2 * RESET_CELL + 1
# The finest step of windows, µs: with finer ones hardly two events of a group fold into one row.
MIN_RESOLUTION = MICROSECONDS["s"]
# Fields that form a group, or that narrow a window to one value of each.
MAX_FIELDS = 8
# What `values` lists: so many, with so many characters each. The longest list is shorter than the longest string.
MOST_LISTED = 10
MAX_LISTED = 100
# The steps of a sequence.
MIN_STEPS = 2
MAX_STEPS = 8
# Rules and tags that one measure over alerts names.
MAX_NAMED = 64
_NAMED = re.compile(f"({TAG})?{RULE_ID}")
# What a measure over alerts may be.
_OF_ALERTS = {Function.COUNT: "*", Function.SUM: "score", Function.COUNT_DISTINCT: "rule"}
_OF_ALERTS_WRITTEN = 'count: "*", sum: score or count_distinct: rule'
# The functions that may have a resolution, and those that take `*`.
_FOLDING = [function for function in Function if function.spec.family is not None]
# Of a measure what stands under its function.
HELD = ("function", "field", "share", "steps")
_OF_ROWS = ", ".join(function for function in Function if function.spec.takes_rows)
_SINGLE_EVENTS = "which looks at single events"
# The options that give a window's length.
_LENGTHS = {"over": "1h", "episode": "1h", "calendar": "day"}
# Why an option does not go with another one, by both; the first of them is refused.
_APART = {
    ("excluding_current", "steps"): "does not go with a sequence, whose last step is the current event. Leave it out",
    ("delay", "steps"): "does not go with a sequence, whose last step is the current event. Leave it out",
    ("excluding_current", "delay"): "has no meaning with delay, whose window ends before the current event",
    ("session", "delay"): "does not go with delay, whose window ends before the current event and its session",
    ("since", "episode"): "does not go with an episode. Write until: what ends the episode",
    ("resolution", "calendar"): "does not go with a calendar, whose days do not begin with whole steps everywhere",
    ("resolution", "episode"): "does not go with an episode, whose begin is not rounded",
    ("resolution", "since"): f"does not go with since, {_SINGLE_EVENTS}",
    ("resolution", "per"): f"does not go with per, {_SINGLE_EVENTS}",
    ("resolution", "session"): f"does not go with a session, {_SINGLE_EVENTS}",
    ("resolution", "delay"): "does not go with delay, whose window ends within a step",
    ("resolution", "excluding_start"): "does not go with excluding_start, as its window begins with a whole step",
    ("over_alerts", "episode"): "does not go with an episode. Write over: 1d",
    ("over_alerts", "resolution"): "does not go with resolution, as folded events are not evaluated again",
}


class Measure(BaseModel):
    """One measure. `field` is None for `count: "*"`, for a sequence, whose conditions are `steps`, and over alerts.

    `share` is that of a percentile, in parts of WHOLE.

    `over` is the window's length in µs, None where there is an `episode`, whose length is in µs, too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    function: Function
    field: str | None
    share: int | None = None
    steps: tuple[str, ...] = ()
    over: Annotated[
        Duration | None,
        Field(
            description="Length of the window: `500ms`, `10s`, `1h30m`, `90d`; at most "
            f"{format_duration(MAX_OVER)}. Both ends are included. Not with `episode` or `calendar`."
        ),
    ]
    delay: Annotated[
        Duration | None,
        Field(
            description="How long before the current event the window ends, end included: `over: 30d` with `delay: 7d` "
            f"holds the 30 days up to a week ago. At most {format_duration(MAX_OVER)} less `over`. Not with "
            "`excluding_current` or `resolution`; only with `over`."
        ),
    ] = None
    calendar: Annotated[
        Calendar | None,
        Field(
            description="Instead of `over`: `day`, `week` or `month`. The window began with the current event's day, "
            "with its Monday or the first of its month, at midnight by the clocks of `zone`."
        ),
    ] = None
    zone: Annotated[
        str | None, Field(description="Of a calendar: the zone's name, as in `Europe/Berlin`. Without it UTC.")
    ] = None
    session: Annotated[
        Duration | None,
        Field(
            description="The window begins with the current event's session, at most `over` before it: with the first "
            "event of the group after the last pause longer than this, as in `30m`, whatever `where` says of the "
            "events. Less than `over`; not with `delay` or `resolution`, only with `over`."
        ),
    ] = None
    episode: Annotated[
        Duration | None,
        Field(
            description="Instead of `over`: the window opens at the first event that meets `where`, closes so long "
            f"after it, and opens again at the next. At most {format_duration(MAX_OVER // EPISODE_REACH)}."
        ),
    ] = None
    until: Annotated[
        str | None, Field(description="Of an episode: the first event that meets it is the episode's last.")
    ] = None
    where: Annotated[
        str | None,
        Field(
            description="Only events that meet it count. It may look at other measures, as they were at these events."
        ),
    ] = None
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
    excluding_start: Annotated[
        bool,
        Field(
            strict=True,
            description="`true`: an event exactly `over` before the window's end does not count. Only with `over`, not "
            "with `resolution`.",
        ),
    ] = False
    since: Annotated[
        str | None, Field(description="Only events after the latest earlier event that meets it count.")
    ] = None
    resolution: Annotated[
        Duration | None,
        Field(
            description="Of a long window: its start is rounded down to a multiple of this, as in `1m`, and the stream "
            f"keeps one row per group and step instead of the events; from {format_duration(MIN_RESOLUTION)} to the "
            f"length of the window. For {', '.join(_FOLDING[:-1])} and {_FOLDING[-1]}; not with `per`, `since`, "
            "`delay`, `excluding_start`, `session`, `episode` or `calendar`."
        ),
    ] = None
    over_alerts: Annotated[
        tuple[str, ...],
        Field(
            max_length=MAX_NAMED,
            description="`[card-velocity, tag:geo]`: the measure is over the violations of these rules, and of those "
            f"with these tags, instead of over events; at most {MAX_NAMED}. They have the rule's stream and group-by. "
            f"For {_OF_ALERTS_WRITTEN}; not with `episode` or `resolution`.",
        ),
    ] = ()

    @model_validator(mode="before")
    @classmethod
    def _from_written_form(cls, written: Any) -> Any:
        """`{sum: amount, …}` as `{function: sum, field: amount, …}`."""
        if not isinstance(written, Mapping):
            return written
        for held in HELD:
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
        share: int | None = None
        steps: tuple[str, ...] = ()
        if Function(named[0]).spec.takes_p:
            field, share = _of_share(named[0], field)
        if "over_alerts" in written:
            _refuse_over_alerts(named[0], field)
            field = None
        elif Function(named[0]).spec.takes_conditions:
            field, steps = None, _steps(named[0], field)
        elif field == "*":
            if not Function(named[0]).spec.takes_rows:
                raise ValueError(f"{named[0]} of * has no meaning. Name a field; only {_OF_ROWS} takes *")
            field = None
        elif not isinstance(field, str):
            raise ValueError(f"{named[0]} of {field!r} has no meaning. Name a field, as in {named[0]}: amount")
        rest = {key: value for key, value in written.items() if key != named[0]}
        if Function(named[0]).spec.is_before:
            if "excluding_current" in rest:
                raise ValueError(f"{named[0]} never has the current event. Leave excluding_current out")
            if "delay" in rest:
                raise ValueError(f"{named[0]} does not go with delay, which ends before the current event. Write last")
            rest["excluding_current"] = True
        for length, example in _LENGTHS.items():
            if length in rest and rest[length] is None:
                raise ValueError(f"{length} is empty. Write how long, as in {length}: {example}")
        if "episode" in rest or "calendar" in rest:
            rest.setdefault("over", None)
        return {"function": named[0], "field": field, "share": share, "steps": steps, **rest}

    @field_validator("over", "episode")
    @classmethod
    def _bounded(cls, length: int | None, info: ValidationInfo) -> int | None:
        most = MAX_OVER if info.field_name == "over" else MAX_OVER // EPISODE_REACH
        if length is not None and not 0 < length <= most:
            what = "window" if info.field_name == "over" else "episode"
            found = format_duration(length)
            raise ValueError(f"{found} is not a valid {what}. Write more than 0 and at most {format_duration(most)}")
        return length

    @field_validator("delay")
    @classmethod
    def _within_reach(cls, delay: int | None, info: ValidationInfo) -> int | None:
        if delay is None or "over" not in info.data:
            return delay
        over = info.data["over"]
        if over is None:
            raise ValueError("is of a window with over. Write over: 30d, or leave delay out")
        if not 0 < delay <= MAX_OVER - over:
            found, most = format_duration(delay), format_duration(MAX_OVER)
            raise ValueError(f"{found} is not a valid delay. Write more than 0, and with over at most {most}")
        return delay

    @field_validator("session")
    @classmethod
    def _below_over(cls, session: int | None, info: ValidationInfo) -> int | None:
        if session is None or "over" not in info.data:
            return session
        over = info.data["over"]
        if over is None:
            raise ValueError("is of a window with over. Write its longest, as in over: 12h, or leave session out")
        if not 0 < session < over:
            found, most = format_duration(session), format_duration(over)
            raise ValueError(f"{found} is not a valid session. Write more than 0 and less than over, which is {most}")
        return session

    @field_validator("excluding_start")
    @classmethod
    def _of_over(cls, excluding: bool, info: ValidationInfo) -> bool:
        if excluding and info.data.get("over", 1) is None:
            raise ValueError("is of a window with over. Leave it out")
        return excluding

    @field_validator("over_alerts")
    @classmethod
    def _naming(cls, named: tuple[str, ...]) -> tuple[str, ...]:
        if not named:
            raise ValueError("is empty. Name rules or tags, as in [card-velocity, tag:geo]")
        for each in named:
            if _NAMED.fullmatch(each) is None:
                what = f"names {shortened(each, 60)!r}, which is neither the id of a rule nor a tag"
                raise ValueError(f"{what}. Write them as in [card-velocity, tag:geo]")
        if len(set(named)) < len(named):
            raise ValueError("names a rule or tag twice. Name each once")
        return named

    @field_validator("delay", "excluding_current", "session", "since", "resolution", "over_alerts")
    @classmethod
    def _together(cls, value: Any, info: ValidationInfo) -> Any:
        for (option, other), why in _APART.items():
            if option == info.field_name and value and info.data.get(other):
                raise ValueError(why if ". " in why else f"{why}. Leave one of them out")
        return value

    @field_validator("episode", "calendar")
    @classmethod
    def _alone(cls, length: Any, info: ValidationInfo) -> Any:
        for other in ("over", "calendar"):
            if length is not None and info.data.get(other) is not None:
                raise ValueError(f"stands beside {other}. A measure has one of them")
        return length

    @field_validator("zone")
    @classmethod
    def _known(cls, zone: str | None, info: ValidationInfo) -> str | None:
        if zone is not None and info.data.get("calendar", 1) is None:
            raise ValueError("belongs to a calendar. Write calendar: day instead of over")
        if zone is not None and not is_zone(zone):
            raise ValueError(f"there is no zone {shortened(zone, 60)!r}. Name it as in 'Europe/Berlin' or 'UTC'")
        return zone

    @field_validator("until")
    @classmethod
    def _of_episode(cls, condition: str | None, info: ValidationInfo) -> str | None:
        if condition is not None and "episode" in info.data and info.data["episode"] is None:
            raise ValueError("belongs to an episode. Write episode: 10m instead of over")
        return condition

    @field_validator("resolution")
    @classmethod
    def _foldable(cls, resolution: int | None, info: ValidationInfo) -> int | None:
        if resolution is None:
            return None
        function = info.data.get("function")
        if function is not None and function.spec.family is None:
            raise ValueError(f"does not go with {function}, which needs every event. It is for {', '.join(_FOLDING)}")
        over = info.data.get("over")
        if not MIN_RESOLUTION <= resolution <= (resolution if over is None else over):
            found, least = format_duration(resolution), format_duration(MIN_RESOLUTION)
            raise ValueError(f"{found} is not a valid resolution. Write at least {least}, at most the window's length")
        return resolution

    @property
    def is_of_scores(self) -> bool:
        """Whether it adds up scores of rules."""
        return bool(self.over_alerts) and self.function is Function.SUM

    @property
    def length(self) -> int:
        """The length of its window or episode, of a calendar the longest, µs."""
        if self.calendar is not None:
            return self.calendar.longest
        return self.over or self.episode or 0

    @property
    def reach(self) -> int:
        """How long before an event those may lie that its value at the event depends on, µs."""
        if self.episode is not None:
            return self.length * EPISODE_REACH
        return self.length + (self.delay or 0) + (self.resolution or 0)

    @model_serializer
    def _written_form(self) -> dict[str, Any]:
        of: Any = [*self.steps] if self.steps else "*" if self.field is None else self.field
        if self.over_alerts:
            of = _OF_ALERTS[self.function]
        if self.share is not None:
            percent, rest = divmod(self.share, WHOLE // 100)
            of = {"of": of, "p": self.share * 100 / WHOLE if rest else percent}
        written: dict[str, Any] = {self.function.value: of}
        if self.calendar is not None:
            written["calendar"] = self.calendar.value
        else:
            written["over" if self.episode is None else "episode"] = format_duration(self.length)
        if self.zone is not None:
            written["zone"] = self.zone
        if self.session is not None:
            written["session"] = format_duration(self.session)
        if self.delay is not None:
            written["delay"] = format_duration(self.delay)
        if self.until is not None:
            written["until"] = self.until
        if self.where is not None:
            written["where"] = self.where
        if self.per:
            written["per"] = list(self.per)
        if self.excluding_current and not self.function.spec.is_before:
            written["excluding_current"] = True
        if self.excluding_start:
            written["excluding_start"] = True
        if self.since is not None:
            written["since"] = self.since
        if self.resolution is not None:
            written["resolution"] = format_duration(self.resolution)
        if self.over_alerts:
            written["over_alerts"] = list(self.over_alerts)
        return written


def _of_share(function: str, written: Any) -> tuple[Any, int]:
    """The field and the share of `{of: amount, p: 95}`."""
    example = f"as in {function}: {{of: amount, p: 95}}"
    if not isinstance(written, Mapping):
        raise ValueError(f"{function} of {written!r:.60} does not say which. Write of and p, {example}")
    for key in ("of", "p"):
        if key not in written:
            raise ValueError(f"{function} has no {key}. Write of and p, {example}")
    if others := [str(key) for key in written if key not in ("of", "p")]:
        raise ValueError(f"{function} has no key {shortened(others[0], 60)!r}. Write of and p, {example}")
    p = written["p"]
    if isinstance(p, bool) or not isinstance(p, int | float):
        raise ValueError(f"p of {function} is {p!r:.60}. Write a number, {example}")
    if 0 < p < 1:
        remedy = f"It is in percent: write p: {float(f'{100 * p:.5g}'):g}, or at least p: 1"
        raise ValueError(f"p of {function} is {p!r:.60}, less than one in a hundred. {remedy}")
    if not 1 <= p < 100:
        raise ValueError(f"p of {function} is {p!r:.60}. Write at least 1 and less than 100, {example}")
    share = Decimal(repr(float(p))) * (WHOLE // 100)
    if share != int(share):
        raise ValueError(f"p of {function} is {p!r:.60}. Write at most three digits after the point, as in p: 99.9")
    return written["of"], int(share)


def _steps(function: str, written: Any) -> tuple[str, ...]:
    """The conditions of a sequence."""
    is_list = isinstance(written, list | tuple) and all(isinstance(step, str) for step in written)
    if is_list and MIN_STEPS <= len(written) <= MAX_STEPS:
        return tuple(written)
    what = f"has {len(written)} steps" if is_list else f"of {shortened(repr(written), 60)} has no meaning"
    example = "[\"status = 'FAIL'\", \"status = 'SUCCESS'\"]"
    raise ValueError(f"{function} {what}. Write {MIN_STEPS} to {MAX_STEPS} conditions, as in {example}")


def _refuse_over_alerts(function: str, written: Any) -> None:
    """Refuse what no measure over alerts may be."""
    if written != _OF_ALERTS.get(Function(function)):
        what = f"{function} of {shortened(repr(written), 60)} is not possible over alerts"
        raise ValueError(f"{what}. Write {_OF_ALERTS_WRITTEN}")


def steps_under(function: Function, written: Any) -> list[str]:
    """The conditions that stand under a function in a rule, if any do."""
    is_list = function.spec.takes_conditions and isinstance(written, list | tuple)
    return [step for step in written if isinstance(step, str)] if is_list else []


def fields_under(function: Function, written: Any) -> list[str]:
    """The field that stands under a function in a rule, if one does."""
    field = written.get("of") if function.spec.takes_p and isinstance(written, Mapping) else written
    if function.spec.takes_conditions or not isinstance(field, str) or field == "*":
        return []
    return [field]
