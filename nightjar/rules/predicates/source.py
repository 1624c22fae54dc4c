"""The text of a predicate, and errors that point into it."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from nightjar.rules.errors import PredicateError


@dataclass(frozen=True)
class Source:
    """The text of a predicate, its place in the rule, and errors that point into it."""

    text: str
    where: str

    def error(self, what: str, position: int = 0, length: int = 1, remedy: str = "") -> PredicateError:
        """An error at a place of the text."""
        return PredicateError(what, text=self.text, position=position, length=length, where=self.where, remedy=remedy)

    def error_at(self, node: exp.Expr, what: str, remedy: str = "") -> PredicateError:
        """An error at the part of the text that `node` was parsed from."""
        return self.error(what, *self.span(node), remedy)

    def span(self, node: exp.Expr) -> tuple[int, int]:
        """Position and length of the text of `node`; of the whole text if sqlglot kept no positions."""
        marks = [part.meta for part in node.walk() if "start" in part.meta]
        if not marks:
            return 0, len(self.text)
        start = min(mark["start"] for mark in marks)
        return start, max(mark["end"] for mark in marks) + 1 - start
