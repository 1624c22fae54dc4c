"""Rules of the Flink fraud-detection demo, as JSON and as comma-separated text, converted to our form.

Purpose: `{"ruleId": 1, "ruleState": "ACTIVE", "groupingKeyNames": ["payeeId"], "aggregateFieldName": "paymentAmount",
"aggregatorFunctionType": "SUM", "limitOperatorType": "GREATER", "limit": 50, "windowMinutes": 20}` becomes the rule
`flink-1` with one measure, `sum_paymentAmount` over 20m, and the condition `sum_paymentAmount > 50`.

How it works: the text form is split into the JSON form's properties. Unknown properties are ignored, as in the demo.

What it does not do: check fields, types and conditions; the result is checked like any rule in our form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Any

from nightjar.rules.documents import JsonFloat
from nightjar.rules.errors import Problem, shortened
from nightjar.rules.foreign.reading import Forms, MessageError, Reading, refused
from nightjar.rules.names import did_you_mean, is_usable_name

PROPERTIES = (
    "ruleId",
    "ruleState",
    "groupingKeyNames",
    "unique",
    "aggregateFieldName",
    "aggregatorFunctionType",
    "limitOperatorType",
    "limit",
    "windowMinutes",
    "filter",
    "controlType",
)
# The parts of the text form, in order.
TEXT_PARTS = PROPERTIES[:9]
# A message with any of these is one of the demo's.
_MARKS = ("ruleId", "ruleState", "controlType")
# Required of a rule unless it is only paused or deleted.
_DEFINITION = ("groupingKeyNames", "aggregatorFunctionType", "limitOperatorType", "limit", "windowMinutes")

_STATES = ("ACTIVE", "PAUSE", "DELETE", "CONTROL")
_FUNCTIONS = {
    "SUM": "sum",
    "AVG": "avg",
    "MIN": "min",
    "MAX": "max",
    "COUNT": "count",
    "UNIQUE_COUNT": "count_distinct",
}
_OPERATORS = {
    "=": ("EQUAL", "EQ", "=="),
    "<>": ("NOT_EQUAL", "NE", "!="),
    ">=": ("GREATER_EQUAL", "GE", "GTE"),
    "<=": ("LESS_EQUAL", "LE", "LTE"),
    ">": ("GREATER", "GT"),
    "<": ("LESS", "LT"),
}
_OPERATOR = {name: symbol for symbol, names in _OPERATORS.items() for name in (symbol, *names)}

COUNT = "COUNT_FLINK"
COUNT_WITH_RESET = "COUNT_WITH_RESET_FLINK"

_RULE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", re.ASCII)
# The second part is a state, which distinguishes the text form from other text.
_TEXT = re.compile(r"\s*[(]?[^,{\[\"]{0,100},\s*[(]?\s*[A-Za-z]+\s*[)]?\s*,")
# Digits before the point of a limit, and after it; more than any field of a stream has.
_MAX_DIGITS = 38

_CONTROLS = {
    "CLEAR_STATE_ALL": (
        "events are not dropped by a message, or stream and backfill would differ",
        "Nothing corresponds to it; a rule that is retired keeps no state",
    ),
    "DELETE_RULES_ALL": (
        "one message changes one rule, so that each has an answer, an author and a reason",
        "Retire each: nightjar rules retire ID",
    ),
    "EXPORT_RULES_CURRENT": (
        "rules are not exported by a message: the topic rule-status holds every version that was accepted",
        "Run nightjar rules list --all --json",
    ),
}
_CONTROLS["CLEAR_STATE_ALL_STOP"] = _CONTROLS["CLEAR_STATE_ALL"]


def is_flink(written: Mapping[str, Any]) -> bool:
    """Whether a mapping is a message of the demo."""
    return any(mark in written for mark in _MARKS)


def is_flink_text(text: str) -> bool:
    """Whether a text looks like the comma-separated form."""
    return _TEXT.match(text) is not None


def rule_id_of(value: Any) -> str | None:
    """The id of a rule of the demo here: flink-1 for 1; None if it is not an id."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if isinstance(value, str) and _RULE_ID.fullmatch(value.strip()):
        return f"flink-{value.strip().lower()}"
    return None


def from_text(text: str, forms: Forms) -> Reading:
    """Read `ruleId, (state), (groupingKeys &), (unique &), (field), (function), (operator), (limit),
    (windowMinutes)`.
    """
    parts = [re.sub(r"[()]", "", part).strip() for part in text.split(",")]
    if len(parts) != len(TEXT_PARTS):
        remedy = f"Parts are {', '.join(TEXT_PARTS)}, as in 1,(active),(payeeId),,(paymentAmount),(SUM),(>),(50),(20)"
        what = f"has {len(parts)} parts, and a rule in text form has {len(TEXT_PARTS)}"
        raise refused("", shortened(text, 60), what, remedy, rule_id_of(parts[0]))
    written: dict[str, Any] = dict(zip(TEXT_PARTS, parts, strict=True))
    # nothing between two commas is an empty list of names
    return from_mapping({name: part for name, part in written.items() if part or name in _LISTS}, forms)


def from_mapping(written: Mapping[str, Any], forms: Forms) -> Reading:
    """Read the JSON form.

    Raises:
        MessageError: something has no equivalent here; it lists everything.
    """
    return _Message(written).reading(forms)


_LISTS = ("groupingKeyNames", "unique")


class _Message:
    """One message of the demo, and the problems found in it so far."""

    def __init__(self, written: Mapping[str, Any]) -> None:
        self.written = {name: value for name, value in written.items() if value is not None}
        self.rule_id = rule_id_of(written.get("ruleId"))
        self.problems: list[Problem] = []
        self.notes: list[str] = []

    def reading(self, forms: Forms) -> Reading:
        if "controlType" in self.written:
            raise self.control()
        state = self.named("ruleState", {name: name for name in _STATES}, "States are")
        if state == "CONTROL":
            raise self.control()
        if self.rule_id is None:
            self.problem("ruleId", "is missing" if "ruleId" not in self.written else "is not an id", "Write a number")
        defined = any(name in self.written for name in (*_DEFINITION, "aggregateFieldName"))
        if state == "DELETE":
            self.notes.append(
                "DELETE retires a rule here: its versions stay listed, and publishing it again revives it"
            )
        if state == "DELETE" or (state == "PAUSE" and not defined):
            self.check()
            return Reading(
                {"control": "retire" if state == "DELETE" else "pause", "rule": self.rule_id},
                tuple(self.notes),
                MappingProxyType({"rule": "ruleId"}),
            )
        return self.rule(state, forms)

    def rule(self, state: str | None, forms: Forms) -> Reading:
        for name in _DEFINITION:
            if name not in self.written:
                self.problem(name, "is missing", f"A rule has {', '.join(_DEFINITION)}")
        group_by = self.names("groupingKeyNames")
        unique = self.names("unique")
        function = self.named("aggregatorFunctionType", _FUNCTIONS, "Functions are")
        operator = self.named("limitOperatorType", _OPERATOR, "Operators are")
        field = self.field(function, unique)
        if field == "*":
            function = "count"
        limit, over, where = self.limit(), self.window(), self.filter()
        self.check()
        measure = "count_events" if field == "*" else f"{function}_{field}"
        if not is_usable_name(measure):
            measure = "aggregate"  # the field's own name is refused where it is looked up
        message = {
            "id": self.rule_id,
            "stream": forms.stream,
            "state": "paused" if state == "PAUSE" else "active",
            "group_by": group_by,
            **({"where": where} if where else {}),
            "measures": {measure: {function: field, "over": over}},
            "when": f"{measure} {operator} {limit}",
        }
        places = {
            "id": "ruleId",
            "stream": "imported_stream",
            "group_by": "groupingKeyNames",
            "where": "filter",
            f"measures.{measure}.over": "windowMinutes",
            f"measures.{measure}": "aggregateFieldName",
            "when": "limit",
        }
        return Reading(message, tuple(self.notes), MappingProxyType(places))

    def control(self) -> MessageError:
        """Why a control message of the demo is refused."""
        kind = self.named("controlType", {name: name for name in _CONTROLS}, "Control types are")
        if kind is not None:
            what, remedy = _CONTROLS[kind]
            self.problem("controlType", f"{kind} is refused: {what}", remedy)
        return MessageError(self.problems)

    def problem(self, place: str, message: str, remedy: str) -> None:
        self.problems.append(Problem(place, shortened(str(self.written.get(place, "")), 60), message, remedy))

    def check(self) -> None:
        if self.problems:
            raise MessageError(self.problems, self.rule_id)

    def named(self, place: str, known: Mapping[str, str], listing: str) -> str | None:
        """The value of a name, ignoring case."""
        value = self.written.get(place)
        if value is None:
            if place not in _DEFINITION:  # else it has been reported
                self.problem(place, "is missing", f"{listing} {', '.join(known)}")
            return None
        found = known.get(value.strip().upper()) if isinstance(value, str) else None
        if found is None:
            self.problem(place, f"{value!r:.60} is not known", did_you_mean(str(value), list(known), listing))
        return found

    def names(self, place: str) -> list[str]:
        """A list of names, or names joined by `&`."""
        value = self.written.get(place, [])
        if isinstance(value, str):
            value = [each.strip() for each in value.split("&")] if value.strip() else []
        if isinstance(value, list) and all(isinstance(each, str) and each for each in value):
            return value
        self.problem(place, f"{value!r:.60} is not a list of fields", 'Write ["payeeId", "beneficiaryId"]')
        return []

    def field(self, function: str | None, unique: list[str]) -> str:
        """The aggregated field; `*` if events are counted."""
        place = "aggregateFieldName"
        field: object = self.written.get(place, "")
        if not isinstance(field, str):
            self.problem(place, f"{field!r:.60} is not a field", "Write its name")
            return ""
        if function == "count_distinct" and not field and len(unique) == 1:
            return unique[0]
        if unique:
            self.notes.append(
                "unique is not used, as in the Flink demo: UNIQUE_COUNT counts distinct values of a field"
            )
        if field == COUNT_WITH_RESET:
            self.problem(
                place,
                f"in the demo an alert of {field} also empties the windows of every other rule with the same "
                "grouping keys, which is a defect",
                f"Write {COUNT}; or a rule of ours with reset_after_alert, whose own count starts again",
            )
        elif field == COUNT and function not in ("sum", "count", None):
            asked = self.written["aggregatorFunctionType"]
            self.problem(
                place, f"{asked} of {COUNT} is always 1: each event counts as one", "Write SUM to count events"
            )
        elif field == COUNT or (function == "count" and field in ("", "*")):
            return "*"
        elif not field and function is not None:
            self.problem(place, "is missing", f"Name the field, or {COUNT} to count events")
        return field

    def limit(self) -> str:
        digits = _digits(self.written.get("limit"))
        if digits is None and "limit" in self.written:
            self.problem(
                "limit", f"{self.written['limit']!r:.60} is not a number", "Write a number such as 500 or 12.50"
            )
        return digits or ""

    def window(self) -> Any:
        """A number is minutes; text with a unit is a duration in our form."""
        value = self.written.get("windowMinutes")
        digits = _digits(value)
        return value if digits is None else f"{digits}m"

    def filter(self) -> str:
        value: object = self.written.get("filter", "")
        if isinstance(value, str):
            return value.strip()
        self.problem("filter", f"{value!r:.60} is not a condition", "Write SQL, as in \"paymentType = 'CSH'\"")
        return ""


def _digits(value: Any) -> str | None:
    """A number, or the text of one, without an exponent and with all its digits; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    text = value.text if isinstance(value, JsonFloat) else str(value).strip()
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    if not number.is_finite() or len(text) > 2 * _MAX_DIGITS or abs(number.adjusted()) > _MAX_DIGITS:
        return None
    return format(number, "f")
