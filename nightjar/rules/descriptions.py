"""Placeholders in a rule's description: `{name}` of a field or measure, for which an alert's text has the value."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from nightjar.rules.names import did_you_mean

PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
# What people write for one by the habits of other languages: {{x}}, { x }, {x:.2f}, {x!r}, {x.y}, {x[0]}, {x|upper}.
_MEANT = re.compile(r"(\{\{?)( *)([A-Za-z_][A-Za-z0-9_]*)([:!.\[|,][^\s{}]*)?( *)(\}\}?)", re.ASCII)


def mistaken_placeholders(description: str, known: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Each placeholder that would not be filled in, or not as meant: the text, what is wrong, and the remedy.

    known: the names of fields and measures. Other braces are text.
    """
    for found in dict.fromkeys(match.group() for match in _MEANT.finditer(description)):
        match = _MEANT.fullmatch(found)
        if match is None:
            continue
        name, form = match[3], match[4]
        plain = f"{{{name}}}"
        remedy = f"Write {plain}" if name in known else did_you_mean(name, known, "Known are")
        if len(match[1]) == 2 and len(match[6]) == 2:
            yield found, f"{found} has two braces on each side", remedy
        elif form is not None:
            what = (
                f"{found} is not filled in: a name stands alone, and doubles are shown with two digits after the point"
            )
            yield found, what, remedy
        elif (match[2] or match[5]) and name in known:
            yield found, f"{found} is not filled in: it has spaces within its braces", remedy
        elif not (match[2] or match[5]) and name not in known:
            yield found, f"{plain} is not filled in: there is no field or measure {name!r}", remedy
