"""A form for the simple rule: one measure of a group over a window, compared with a number.

What it does not do: check anything. What the form says becomes the rule's text as it is, and the page says what is
wrong with that.
"""

from __future__ import annotations

from typing import Annotated

import yaml
from pydantic import BaseModel, StringConstraints

from nightjar.rules.functions import Function

# Functions of the events or of one field, by their names in a rule.
FUNCTIONS = [each.value for each in Function if not each.spec.takes_p and not each.spec.takes_conditions]
OPERATORS = (">", ">=", "=", "<=", "<")

_Short = Annotated[str, StringConstraints(max_length=200, strip_whitespace=True)]


class AskedRule(BaseModel):
    """What the form has. group, field: each a stream and a field of it, as in `transactions.amount`; without a field it
    is the events. number: what the measure is compared with. An empty function: no form was sent."""

    id: _Short = ""
    group: _Short = ""
    function: _Short = ""
    field: _Short = ""
    over: _Short = ""
    operator: _Short = ""
    number: _Short = ""

    @property
    def text(self) -> str:
        """The rule, as people write it; empty where no form was sent."""
        if not self.function:
            return ""
        stream, _, grouped = self.group.rpartition(".")
        of = self.field.rpartition(".")[2] or "*"
        written = {
            "id": self.id,
            "stream": stream,
            "group_by": [grouped],
            "measures": {"n": {self.function: of, "over": self.over}},
            "when": f"n {self.operator} {self.number}",
            "severity": "medium",
            "description": f"{grouped} {{{grouped}}}: {self.function} is {{n}} within {self.over}",
        }
        shown: str = yaml.safe_dump(written, sort_keys=False, default_flow_style=None, allow_unicode=True, width=110)
        return shown
