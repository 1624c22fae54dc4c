"""The errors that nightjar raises: each has what is wrong, where, and the remedy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class NightjarError(Exception):
    """Base of nightjar's own errors; the text is for the person who can fix the cause.

    `where` is the file, key, rule or event it is about; `remedy` is what would be right. Both may be empty.
    """

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        self.what = what
        self.where = where
        self.remedy = remedy
        super().__init__(sentence(what, where=where, remedy=remedy))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by what it has: subclasses are made from other arguments than their text."""
        return _unpickled, (type(self), self.args, self.__dict__)


def _unpickled(kind: type[NightjarError], args: tuple[object, ...], members: dict[str, object]) -> NightjarError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(members)
    return error


class DeclarationError(NightjarError):
    """A stream declaration cannot be used."""


class SettingsError(NightjarError):
    """A setting or an option has a value that cannot be used."""


class EvaluationError(NightjarError):
    """A rule cannot be evaluated on certain events, for example because an exact sum is out of range."""


@dataclass(frozen=True)
class Problem:
    """One problem of a rule.

    `place` is the path in the rule (`measures.spent.sum`), `found` the value there, `excerpt` the lines that point
    into a predicate's text (empty elsewhere).
    """

    place: str
    found: str
    message: str
    remedy: str = ""
    excerpt: str = ""

    def __post_init__(self) -> None:
        # A rule may hold anything, and its problems are shown to people and sent through Kafka.
        for name in ("place", "found", "message"):
            object.__setattr__(self, name, shortened(getattr(self, name)))

    def __str__(self) -> str:
        text = sentence(self.message, where=self.place, remedy=self.remedy)
        if self.excerpt:
            return f"{text}\n{self.excerpt}"
        return text


class RuleError(NightjarError):
    """A rule is refused; `problems` lists everything wrong with it, in the rule's order."""

    def __init__(self, problems: Sequence[Problem], *, where: str = "") -> None:
        self.problems = list(problems)
        first = self.problems[0]
        super().__init__(first.message, where=where, remedy=first.remedy)

    def __str__(self) -> str:
        if len(self.problems) == 1:
            return f"{self.where}: {self.problems[0]}" if self.where else str(self.problems[0])
        listed = "\n".join(_indented(f"- {problem}") for problem in self.problems)
        return f"{self.where or 'the rule'}: {len(self.problems)} problems\n{listed}"


def problems_of(refusal: NightjarError) -> list[Problem]:
    """What is wrong, one problem each; of an error without problems itself as one."""
    return refusal.problems if isinstance(refusal, RuleError) else [Problem("", "", refusal.what, refusal.remedy)]


class PredicateError(RuleError):
    """A predicate is refused; `position` (0-based) and `length`, in characters, mark the place in `text`."""

    def __init__(
        self, what: str, *, text: str, position: int, length: int = 1, where: str = "", remedy: str = ""
    ) -> None:
        self.text = text
        self.position = position
        self.length = max(1, length)
        found = text[position : position + self.length]
        super().__init__([Problem(where, found, what, remedy, caret(text, position, self.length))])

    @classmethod
    def of(cls, errors: Sequence[PredicateError]) -> PredicateError:
        """Merge errors into one: the position of the first, and the problems of all, without repeats."""
        first = errors[0]
        first.problems = list(
            {(each.message, each.found): each for error in errors for each in error.problems}.values()
        )
        return first


# Enough of the text on either side to recognise the place, within one line of a terminal.
_EXCERPT_BEFORE = 60
_EXCERPT_AFTER = 40


def caret(text: str, position: int, length: int) -> str:
    """Two lines: the part of `text` around `position`, and carets under the `length` characters."""
    start = max(0, position - _EXCERPT_BEFORE)
    stop = min(len(text), position + length + _EXCERPT_AFTER, position + _EXCERPT_BEFORE + _EXCERPT_AFTER)
    shown = "".join(_one_column(character) for character in text[start:stop])
    before, after = "…" if start else "", "…" if stop < len(text) else ""
    marks = "^" * max(1, min(length, stop - position))
    return f"    {before}{shown}{after}\n    {' ' * (len(before) + position - start)}{marks}"


def _one_column(character: str) -> str:
    """A character as shown above a line of carets: control characters are replaced."""
    if character.isspace():
        return " "
    return character if character.isprintable() else "\N{REPLACEMENT CHARACTER}"


def sentence(what: str, *, where: str = "", remedy: str = "") -> str:
    """The text of an error: `where: what. remedy`."""
    text = f"{printable(where)}: {what}" if where else what
    return f"{text.rstrip('.')}. {remedy}" if remedy else text


def shortened(text: str, longest: int = 300) -> str:
    """The text, cut to the length with an ellipsis."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def printable(text: str) -> str:
    """The text with control and unprintable characters escaped: anybody may have sent it."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
