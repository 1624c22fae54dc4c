"""The values that aggregates read of a row, beside it in a timeline's arena: columns of one type, side by side."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from nightjar.rules.engine.memory import allocate

Name = int | str


class Facts:
    """A table (places, facts) of an arena: `all`. Facts are named; spare columns are for later facts."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self.all: npt.NDArray[Any] = np.zeros((0, 0), dtype)
        self._at: dict[Name, int] = {}

    def use(
        self,
        names: Iterable[Name],
        changed: Collection[Name],
        fill: Callable[[Name, npt.NDArray[Any], int], None],
        used: int,
    ) -> None:
        """Keep these facts from now on, of places below `used`. fill: writes one, new or changed, to its column."""
        wanted = dict.fromkeys(names)
        self._at = {name: at for name, at in self._at.items() if name in wanted}
        fresh = [name for name in wanted if name not in self._at]
        if len(wanted) > self.all.shape[1]:
            wider = allocate((len(self.all), len(wanted) + len(wanted) // 4), self.all.dtype)
            wider[:used, : self.all.shape[1]] = self.all[:used]
            self.all = wider
        free = (at for at in range(self.all.shape[1]) if at not in {*self._at.values()})
        self._at |= dict(zip(fresh, list(free), strict=False))
        for name in [*fresh, *(name for name in changed if name in wanted and name not in fresh)]:
            fill(name, self.all, self._at[name])

    def items(self) -> Iterable[tuple[Name, int]]:
        """The facts and their columns."""
        return self._at.items()

    def __contains__(self, name: Name) -> bool:
        return name in self._at

    def __getitem__(self, name: Name) -> int:
        """The column of the fact."""
        return self._at[name]
