r"""Regular expressions of REGEXP_LIKE: a subset that engines understand alike, for one that takes linear time (S3.13).

How it works: a pattern is read here, piece by piece, and written again for the engine in Polars (Rust's), in forms that
leave nothing open: `\d`, `\w`, `\s`, `\b` and `(?i)` are about ASCII, `^` and `$` the ends of the whole text. So what a
pattern means depends on no engine's tables of Unicode. What engines read in different ways is refused by name, and so
are look-around and back-references, which no engine can match in linear time.

What it does not do: say what a group has matched; groups only hold alternatives and repetitions together.
"""

from __future__ import annotations

import re
import string
from typing import NamedTuple

from nightjar.rules.predicates.coercion import Unfit

# Characters of a pattern, and pieces that it stands for: a character is one, a class or a dot four, each as often as it
# may be repeated. The engine takes time proportional to their number times the length of the text.
MAX_PATTERN = 1000
MAX_PIECES = 1000
# Groups within groups.
_MAX_DEPTH = 16
_CLASS = 4

_COUNTS = re.compile(r"\{([0-9]{1,4})(,([0-9]{0,4}))?\}")
_CLASSES = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\x{9}-\x{D}\x{20}"}
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_GROUPS = {
    "?=": "look-ahead (?=…) is not possible in linear time",
    "?!": "look-ahead (?!…) is not possible in linear time",
    "?<=": "look-behind (?<=…) is not possible in linear time",
    "?<!": "look-behind (?<!…) is not possible in linear time",
    "?>": "an atomic group (?>…) is not possible in linear time",
    "?P=": "a back-reference (?P=…) is not possible in linear time",
}
_SPLIT = "Join several REGEXP_LIKE by AND or NOT instead"


class _Read(NamedTuple):
    written: str
    pieces: int


def translated(pattern: str) -> str:
    """The pattern as the engine reads it.

    Raises:
        Unfit: it is too large, or has what the subset lacks.
    """
    if len(pattern) > MAX_PATTERN:
        raise Unfit(f"the pattern has {len(pattern)} characters, more than {MAX_PATTERN}", _SPLIT)
    found = _Reader(pattern).whole()
    if found.pieces > MAX_PIECES:
        what = f"the pattern stands for {found.pieces} pieces (a class counts as four), more than {MAX_PIECES}"
        raise Unfit(what, "Repeat less, as in \\d{1,9}, or use + and *")
    return found.written


class _Reader:
    def __init__(self, pattern: str) -> None:
        self.text, self.at = pattern, 0
        self.any_case = pattern.startswith("(?i)")

    def whole(self) -> _Read:
        self.at = len("(?i)") if self.any_case else 0
        found = self.alternatives(0)
        if self.at < len(self.text):
            raise self.unfit("this ) closes no group", "Write \\) for the character")
        return found

    def unfit(self, what: str, remedy: str) -> Unfit:
        return Unfit(f"{what} (character {self.at + 1} of the pattern)", remedy)

    def next_is(self, *texts: str) -> bool:
        return self.text.startswith(texts, self.at)

    def take(self) -> str:
        self.at += 1
        return self.text[self.at - 1]

    def alternatives(self, depth: int) -> _Read:
        branches = [self.branch(depth)]
        while self.next_is("|"):
            self.at += 1
            branches.append(self.branch(depth))
        return _Read("|".join(part.written for part in branches), max(1, sum(part.pieces for part in branches)))

    def branch(self, depth: int) -> _Read:
        written, pieces = "", 0
        while self.at < len(self.text) and not self.next_is("|", ")"):
            found = self.repeated(self.atom(depth))
            written, pieces = written + found.written, pieces + found.pieces
        return _Read(written, pieces)

    def repeated(self, atom: _Read) -> _Read:
        if not self.next_is("*", "+", "?", "{"):
            return atom
        if not atom.pieces:
            raise self.unfit("nothing stands here that can be repeated", "Leave it out")
        times, counts = 1, _COUNTS.match(self.text, self.at)
        if counts is not None:
            least, ranged, most = int(counts[1]), counts[2], counts[3]
            times = int(most) if most else least + bool(ranged)
            if most and int(most) < least:
                raise self.unfit(f"{counts[0]} ends before it begins", "Write the smaller number first")
            self.at = counts.end()
            suffix = counts[0]
        else:
            if self.next_is("{"):
                raise self.unfit("{ begins a number of repetitions, as in {3} or {2,5}", "Write \\{ for the character")
            suffix = self.take()
        if self.next_is("?"):
            suffix += self.take()
        if self.next_is("*", "+", "?", "{"):
            raise self.unfit("a repetition follows another", "Put what is repeated in a group, as in (?:a{2})+")
        return _Read(f"{atom.written}{suffix}", max(1, times) * atom.pieces)

    def atom(self, depth: int) -> _Read:
        if self.next_is("*", "+", "?", "{"):
            raise self.unfit(
                f"{self.text[self.at]} stands after nothing", f"Write \\{self.text[self.at]} for the character"
            )
        match self.take():
            case ".":
                return _Read(r"[^\n]", _CLASS)
            case "^":
                return _Read(r"\A", 0)
            case "$":
                return _Read(r"\z", 0)
            case "(":
                return self.group(depth + 1)
            case "[":
                return self.listed()
            case "\\":
                return self.escaped()
            case character:
                return _Read(self.literal(character), 1)

    def group(self, depth: int) -> _Read:
        for begins, what in _GROUPS.items():
            if self.next_is(begins):
                raise self.unfit(what, _SPLIT)
        if self.next_is("?i)"):
            raise self.unfit("(?i) stands within the pattern", "Write it at the beginning, for the whole pattern")
        if self.next_is("?:"):
            self.at += 2
        elif self.next_is("?"):
            raise self.unfit("this kind of group is unknown here", "Write (…) or (?:…)")
        if depth > _MAX_DEPTH:
            raise self.unfit(f"groups are nested deeper than {_MAX_DEPTH} levels", _SPLIT)
        found = self.alternatives(depth)
        if not self.next_is(")"):
            raise self.unfit("a group is not closed", "Add ) where it ends, or write \\( for the character")
        self.at += 1
        return _Read(f"(?:{found.written})", found.pieces)

    def escaped(self) -> _Read:
        if self.next_is("b"):
            self.at += 1
            return _Read(r"(?-u:\b)", 0)
        if (letters := self.class_of_letters()) is not None:
            return _Read(f"[{letters}]", _CLASS)
        return _Read(self.literal(self.character()), 1)

    def class_of_letters(self) -> str | None:
        r"""What \d, \w or \s stands for within brackets, or one of their opposites; None: it is none of them."""
        letter = self.text[self.at : self.at + 1]
        if (found := _CLASSES.get(letter.lower())) is None:
            return None
        self.at += 1
        return found if letter.islower() else f"[^{found}]"

    def character(self) -> str:
        """The one character that stands after a backslash."""
        escaped = self.text[self.at : self.at + 1]
        if escaped and escaped in string.punctuation:
            return self.take()
        if escaped in _CONTROLS:
            return _CONTROLS[self.take()]
        code = self.text[self.at + 1 : self.at + 3]
        if escaped == "x" and re.fullmatch("[0-9A-Fa-f]{2}", code):
            self.at += 3
            return chr(int(code, 16))
        if escaped in tuple("123456789k"):
            raise self.unfit(f"the back-reference \\{escaped} is not possible in linear time", _SPLIT)
        known = "\\d \\w \\s \\D \\W \\S \\b \\n \\t \\r \\f \\xHH, and \\ before punctuation"
        raise self.unfit(f"\\{escaped} is unknown", f"Known are {known}; ends are ^ and $")

    def listed(self) -> _Read:
        """A class in brackets."""
        negated = self.next_is("^")
        self.at += negated
        written, count = "", 0
        while not self.next_is("]") or not count:
            if self.at >= len(self.text):
                raise self.unfit("a class is not closed", "Add ] where it ends, or write \\[ for the character")
            if self.next_is("[", "]", "&&"):
                raise self.unfit(
                    f"{self.text[self.at]} stands within a class", f"Write \\{self.text[self.at]} for the character"
                )
            written += self.element()
            count += 1
        self.at += 1
        return _Read(f"[{'^' * negated}{written}]", _CLASS)

    def element(self) -> str:
        """A character of a class, a range of them, or a class of letters."""
        first = self.member()
        is_range = self.next_is("-") and not self.next_is("-]")
        if not is_range:
            return self.literal(first, first) if len(first) == 1 else first
        self.at += 1
        last = self.member() if self.at < len(self.text) else ""
        if len(first) != 1 or len(last) != 1 or first > last:
            raise self.unfit("this is no range of characters", "Write it as in a-z, or \\- for the character")
        return self.literal(first, last)

    def member(self) -> str:
        taken = self.take()
        if taken != "\\":
            return taken
        letters = self.class_of_letters()
        return self.character() if letters is None else letters

    def literal(self, first: str, last: str = "") -> str:
        """A character, or within a class a range of them; in either case if the pattern says so."""
        ranges = [(first, last or first)]
        if self.any_case:
            for letters, others in ((string.ascii_lowercase, str.upper), (string.ascii_uppercase, str.lower)):
                low, high = max(first, letters[0]), min(last or first, letters[-1])
                if low <= high:
                    ranges.append((others(low), others(high)))
        written = "".join(_code(low) if low == high else f"{_code(low)}-{_code(high)}" for low, high in ranges)
        return written if last or len(ranges) == 1 else f"[{written}]"


def _code(character: str) -> str:
    """A character that is nothing else to the engine, in a class and elsewhere."""
    return character if character.isascii() and character.isalnum() else f"\\x{{{ord(character):X}}}"
