"""How long the groups of a real-time query took, from the engine process to the driver's reports."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class GroupTimes:
    """The groups since the last report. seconds: of all of them, by part; slowest: seconds of one, all parts."""

    groups: int = 0
    rows: int = 0
    most_rows: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    slowest: float = 0.0

    def add(self, rows: int, parts: dict[str, float]) -> None:
        """Count a group of so many records. parts: seconds, one after the other."""
        self.groups += 1
        self.rows += rows
        self.most_rows = max(self.most_rows, rows)
        for part, took in parts.items():
            self.seconds[part] = self.seconds.get(part, 0.0) + took
        self.slowest = max(self.slowest, sum(parts.values()))
