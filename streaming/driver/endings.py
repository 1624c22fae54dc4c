"""Purpose: find the versions of rules that have to be answered SUPERSEDED or RETIRED.

How it works: both follow from the rule book and the stream's clock: a version is superseded once a later one has taken
effect, and a rule is retired once its retired version has. So they are the same after a restart, and a version whose
answer is on the topic is not found again.

What it does not do: decide anything. Which version an event sees follows from effective times alone (S5.1).
"""

from __future__ import annotations

from collections.abc import Mapping

from nightjar.rules.publishing import Answer, Status
from nightjar.rules.rulebook import RuleBook
from nightjar.rules.states import State
from nightjar.rules.timestamps import iso_text
from nightjar.rules.versions import NOT_YET, RuleVersion, superseded


class Endings:
    """Versions that end, and have not been answered so."""

    def __init__(self, book: RuleBook) -> None:
        self._book = book
        # The offset of the answer that gave a version its effective time, and the rules that are not settled.
        self._made: dict[tuple[str, int], int] = {}
        self._open: set[str] = set()

    def take(self, rule_id: str, version: int, offset: int) -> None:
        """Take the answer at that offset of `rule-status`, which gave a version its effective time, or made it."""
        self._made[rule_id, version] = offset
        self._open.add(rule_id)

    def due(self, clocks: Mapping[str, int], consumed: int) -> list[Status]:
        """The answers that are due, the versions of a rule in their order.

        clocks: µs, by stream. consumed: the offset of `rule-status` up to which the query has committed.
        """
        found: list[Status] = []
        for rule_id in sorted(self._open):
            # one that waits ends nothing yet, and is taken again with its effective time
            versions = [version for version in self._book.of_rule(rule_id) if version.effective != NOT_YET]
            clock = clocks.get(versions[0].rule.stream) if versions else None
            known = [version for version in versions if self._made[rule_id, version.version] < consumed]
            if clock is not None:
                for version in known:
                    found += self._of(version, known, clock)
            if not any(self._of(version, versions, NOT_YET) for version in versions):
                self._open.remove(rule_id)  # nothing is left to answer, whatever the clock
        return found

    def _of(self, version: RuleVersion, versions: list[RuleVersion], clock: int) -> list[Status]:
        """The answers about a version that are due at that time (µs), and were not given."""
        name = rule_id, number = version.rule.id, version.version
        found = []
        by = superseded(version, versions, clock)
        end = None if by is None else by.since
        applied = version.effective <= clock and (end is None or end > version.effective)
        if applied and version.rule.state is State.RETIRED and name not in self._book.retired:
            found.append(Status(Answer.RETIRED, rule_id, number, version.effective))
        if by is not None and end is not None and name not in self._book.superseded:
            why = f"version {by.by} applies from {iso_text(end)}"
            found.append(Status(Answer.SUPERSEDED, rule_id, number, version.effective, (why,), superseded=by))
        return found
