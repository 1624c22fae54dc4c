"""What versions need of the past, and what of it the state of a shuffle key has (S5.7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from nightjar.rules.engine.plan import Fold, compile_plan
from nightjar.rules.retention import unfolded
from nightjar.rules.streams import Stream
from nightjar.rules.versions import RuleSet, RuleVersion
from nightjar.streaming.buckets.primed_state import Lack
from nightjar.streaming.state.statelog import FIRST_INSTANT, Head


@dataclass(frozen=True)
class Since:
    """From when on, as event times (µs), single events are needed, and steps of folds."""

    rows: int
    steps: Mapping[Fold, int] = field(default_factory=dict)

    @property
    def earliest(self) -> int:
        """The earliest of them."""
        return min([self.rows, *self.steps.values()])

    def covers(self, other: Since) -> bool:
        """Whether nothing that the other needs is missing here."""
        steps = (self.steps.get(fold, since + 1) <= since for fold, since in other.steps.items())
        return self.rows <= other.rows and all(steps)

    @classmethod
    def of_all(cls, several: Iterable[Since]) -> Since:
        """What several need together."""
        each = [*several]
        folds = {fold for since in each for fold in since.steps}
        steps = {fold: min(since.steps[fold] for since in each if fold in since.steps) for fold in folds}
        return cls(min(since.rows for since in each), steps)


@dataclass(frozen=True)
class Needs:
    """How long before an event those may lie that a version depends on (µs): single events, and steps of folds."""

    rows: int
    steps: Mapping[Fold, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.rows or self.steps)  # without lateness there may be steps alone

    @property
    def width(self) -> int:
        """The longest of them."""
        return max([self.rows, *self.steps.values()])

    def since(self, time: int) -> Since:
        """What events from this event time (µs) on need, if the clock is known."""
        if time == FIRST_INSTANT:
            return Since(FIRST_INSTANT, dict.fromkeys(self.steps, FIRST_INSTANT))
        steps = {fold: (time - reach) // fold.resolution * fold.resolution for fold, reach in self.steps.items()}
        return Since(time - self.rows, steps)


def needs_of(version: RuleVersion, stream: Stream, naming: Iterable[RuleVersion] = ()) -> Needs:
    """What a version needs, and those that count its violations.

    Where a measure has a resolution, so long as events may come that count for it (S14.4).
    """
    plan = compile_plan(stream, RuleSet((replace(version, effective=0),)), None)
    steps = {fold: reach for group in plan.groups for fold, reach in group.folds.items()}
    rows = max(map(unfolded, (version, *naming)))
    return Needs(max(rows, stream.allowed_lateness) if steps else rows, steps)


@dataclass(frozen=True)
class Coverage:
    """The history that the state of a shuffle key has. heads: of its buckets; lacks: the offsets by partition before
    which it has no events; settled: event time (µs) before which no event of the stream is evaluated any more."""

    heads: tuple[Head, ...]
    lacks: Mapping[int, int]
    settled: int

    @property
    def horizon(self) -> int:
        """Event time (µs) from which on all buckets have their events, except for what the state lacks."""
        return max(head.horizon for head in self.heads)

    def has(self, since: Since, settled: int) -> bool:
        """Whether nothing of this is missing, or will be once the state has settled events up to `settled` (µs)."""

        def by_then(time: int) -> int:
            if self.settled == FIRST_INSTANT < settled:
                return settled
            return time + settled - self.settled

        if self.lacks or by_then(self.horizon) > since.rows:
            return False
        return all(by_then(_complete(head, fold)) <= of for head in self.heads for fold, of in since.steps.items())

    def lacking(self, since: Since) -> tuple[Lack, ...]:
        """By bucket, what it lacks."""
        return tuple(
            Lack(
                since.rows,
                head.horizon,
                self.lacks,
                since.steps,
                {fold: _complete(head, fold) for fold in since.steps},
                max(head.folded, head.horizon, since.rows),
                self.settled,
            )
            for head in self.heads
        )


def _complete(head: Head, fold: Fold) -> int:
    """Event time (µs) from which on a bucket has all of a fold's events."""
    if fold.name in head.folds:
        return max(head.folds[fold.name])
    return max(head.folded, head.horizon)
