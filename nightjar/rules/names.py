"""Valid names of fields and measures, and suggestions for misspelt ones."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from itertools import islice

from nightjar.rules.errors import shortened

# Patterns: of the name of a field or measure, and of the id of a rule or the name of a restriction.
IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]{0,62}"
RULE_ID = r"[a-z0-9][a-z0-9._-]{0,99}"
# What stands before a tag where a rule may be named too.
TAG = "tag:"

# Keywords of predicates: a field of this name could never be used in one.
RESERVED_WORDS = frozenset(
    {
        "AND",
        "AS",
        "BETWEEN",
        "CASE",
        "ELSE",
        "END",
        "ESCAPE",
        "FALSE",
        "FROM",
        "ILIKE",
        "IN",
        "IS",
        "LIKE",
        "NOT",
        "NULL",
        "OR",
        "THEN",
        "TRUE",
        "WHEN",
    }
)


# Maximum number of names that a remedy lists, and of the characters of each: a rule's id has at most 100.
_LISTED, _LONGEST = 30, 100


def is_usable_name(name: object) -> bool:
    """Whether `name` can be used in a predicate as it is: an SQL identifier that is not a keyword."""
    return isinstance(name, str) and re.fullmatch(IDENTIFIER, name) is not None and name.upper() not in RESERVED_WORDS


# A name that is not that of a function, or that of a value in a table (cards.country); or a text in quotes, in which
# there are no names; or IN with a table's name.
_NAMED = re.compile(
    r"'(?:[^']|'')*'|(?<![A-Za-z0-9_])(?:(?i:IN)\s+[A-Za-z_]\w*+|[A-Za-z_]\w*+(?:\.[A-Za-z_]\w*+)?(?! *\())", re.ASCII
)


def named_in(predicate: str, known: Collection[str]) -> frozenset[str]:
    """Those of the known names of fields or measures that a predicate has, valid or not."""
    return frozenset(_NAMED.findall(predicate)).intersection(known)


def unknown_name(name: str) -> str:
    """The problem of a name in a predicate that no column has."""
    return f"unknown name {name!r}"


def did_you_mean(name: str, known: Collection[str], listing: str) -> str:
    """A remedy for an unknown name: the nearest known one, and the first known ones after `listing` ("Fields are")."""
    near = nearest(name, known)
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    # what is known may come from the same hostile rule
    listed = f"{listing} {', '.join(shortened(each, _LONGEST) for each in islice(known, _LISTED))}{more}"
    return f"Did you mean {shortened(near, _LONGEST)}? {listed}" if near is not None else listed


def nearest(name: str, known: Collection[str]) -> str | None:
    """The known name that is most like another one; None if none is."""
    folded = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(name.lower(), folded, 1)
    return folded[near[0]] if near else None


def rule_meant(rule_id: str, published: Collection[str]) -> str:
    """A remedy for the id of a rule that was never published. published: the ids of all that were."""
    return did_you_mean(rule_id, published, "Rules are") if published else "No rule has been published yet"
