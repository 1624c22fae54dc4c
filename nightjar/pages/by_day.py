"""What a process knows of days: made for each day once, and again when other files may have rows of that day.

An archive that runs every quarter of an hour adds files with rows of the newest days, so that of all others what was
made stays right.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import date
from typing import Generic, TypeVar

Made = TypeVar("Made")


class ByDay(Generic[Made]):
    """By day what `make` returns. Its methods may be called by several threads, of which one makes what is missing.

    make: given days, the latest first, what is known of each. at_once: how many it is given, so that others who wait
    for theirs get their turn in between. most: how much is kept, by `size`, which is 1 where nobody says otherwise;
    what was used last is kept longest.
    """

    def __init__(
        self,
        make: Callable[[Sequence[date]], Mapping[date, Made]],
        *,
        at_once: int,
        most: int,
        size: Callable[[Made], int] = lambda _: 1,
    ) -> None:
        self._make, self._at_once, self._most, self._size = make, at_once, most, size
        self._kept: OrderedDict[date, tuple[Hashable, Made]] = OrderedDict()
        self._lock, self._making = threading.Lock(), threading.Lock()

    def of(self, states: Mapping[date, Hashable]) -> dict[date, Made]:
        """Of each of these days. states: what makes another state of a day another value, such as its files."""
        found = self.known(states)
        left = sorted(states.keys() - found.keys(), reverse=True)
        while left:
            with self._making:
                found |= self.known({day: states[day] for day in left})  # what somebody else has made meanwhile
                some = [day for day in left if day not in found][: self._at_once]
                made = dict(self._make(some)) if some else {}
                self._keep({day: (states[day], value) for day, value in made.items()})
            found |= made
            left = [day for day in left if day not in found]
        return found

    def known(self, states: Mapping[date, Hashable]) -> dict[date, Made]:
        """Of those of the days that are kept in this state."""
        found: dict[date, Made] = {}
        with self._lock:
            for day, state in states.items():
                known = self._kept.get(day)
                if known is not None and known[0] == state:
                    self._kept.move_to_end(day)
                    found[day] = known[1]
        return found

    def every(self) -> list[Made]:
        """All that is kept, whether or not it has changed since."""
        with self._lock:
            return [value for _, value in self._kept.values()]

    def _keep(self, made: Mapping[date, tuple[Hashable, Made]]) -> None:
        with self._lock:
            for day, value in made.items():
                self._kept[day] = value
                self._kept.move_to_end(day)
            size = sum(self._size(value) for _, value in self._kept.values())
            while size > self._most:
                size -= self._size(self._kept.popitem(last=False)[1][1])
