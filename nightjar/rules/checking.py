"""Find all problems of a rule at once: its shape, its fields' names and types, its predicates.

pydantic checks the shape; its errors are translated into the terms of a rule's author.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from nightjar.rules.absence import DUE
from nightjar.rules.allowing import ALLOWED_BY, OF_ALERTS
from nightjar.rules.computed import in_order, type_of_value
from nightjar.rules.descriptions import mistaken_placeholders
from nightjar.rules.durations import format_duration
from nightjar.rules.errors import DeclarationError, PredicateError, Problem
from nightjar.rules.functions import Function, result_type
from nightjar.rules.measures import HELD, MAX_FIELDS, Measure, fields_under, steps_under
from nightjar.rules.names import did_you_mean, is_usable_name, named_in, unknown_name
from nightjar.rules.predicates import check_predicate, check_value, compile_predicate
from nightjar.rules.tables import tables_among, values_of
from nightjar.rules.types import FieldType, Kind

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from nightjar.rules.streams import Stream

# Each measure costs some hundred nanoseconds per event of its group, and one line of the rule's page.
MAX_MEASURES = 64

# As many as a person fixes at once. All problems of a rule must fit in one Kafka record.
MAX_PROBLEMS = 50

_MEASURE_OPTIONS = tuple(name for name in Measure.model_fields if name not in HELD)
_EXAMPLES = {
    "id": "Lower-case letters, digits, '.', '_' and '-', at most 100, as in card-velocity",
    "stream": "Name a declared stream",
    "shadow_of": "Write the id of the live rule",
    "group_by": "List the fields that make a group, as in [customer_id]; [] is the whole stream",
    "measures": "Write name: {sum: amount, over: 1h}, or an expression in quotes",
    "lookup": "Write the table and the field that is its key, as in {cards: card_id}",
    "when": 'Write a condition, as in "spent > 500"',
    "where": 'Write a condition, as in "amount > 0"',
    "over": "Write the window's length, as in over: 1h",
    "delay": "Write how long before the event the window ends, as in delay: 7d",
    "calendar": "Write day, week or month",
    "zone": "Name a zone, as in Europe/Berlin",
    "session": "Write the pause that ends a session, as in session: 30m",
    "episode": "Write the episode's length, as in episode: 10m",
    "until": "Write a condition, as in \"status = 'SUCCESS'\"",
    "per": "List the fields, as in [ip]",
    "since": "Write a condition, as in \"status = 'SUCCESS'\"",
    "excluding_current": "Write true or false",
    "excluding_start": "Write true or false",
    "resolution": "Write a length of time, as in resolution: 1m",
    "unless": "Write unless: {within: 15m, where: \"status = 'DELIVERED'\"}",
    "allows": 'List rules and tags, as in [card-velocity, tag:geo], or ["*"] for all',
    "reset_after_alert": "Write true or false",
    "description": "Write text, at most 4096 characters",
    "action": "Write action: {restrict: block_customer, for: 24h}",
    "score": "Write a whole number of points, as in score: 40",
    "tags": "List names, as in [velocity]: lower-case letters, digits, '.', '_' and '-'",
    "over_alerts": "List rules and tags, as in [card-velocity, tag:geo]",
    "mute": "Write a length of time, as in mute: 30m",
    "revisions": "Write values or verdict",
    "author": "Write one line of text, at most 100 characters",
    "reason": "Write one line of text, at most 500 characters",
}
# Keys whose text may look like a number or like true and false.
_TEXTS = ("id", "shadow_of", "description", "author", "reason")

Shape = TypeVar("Shape", bound=BaseModel)


def check_rule(
    shape: type[Shape], written: Mapping[str, Any], streams: Mapping[str, Stream], *, accepted: bool = False
) -> tuple[Shape | None, list[Problem]]:
    """The rule that a mapping holds, or its problems: unknown keys, of which others follow, then by the order of keys.

    accepted: leave out the checks of new rules, which an earlier release did not have.
    """
    check = _Check(written, streams, accepted=accepted)
    measures = check.measures()
    rule = check.validated(shape, {**written, "measures": measures}, ())
    check.meaning(measures)
    order = {key: at for at, key in enumerate(shape.model_fields)}
    problems = sorted(check.problems, key=lambda problem: order.get(problem.place.split(".")[0], -1))
    if len(problems) > MAX_PROBLEMS:
        problems[MAX_PROBLEMS:] = [Problem("", "", "there are more problems", "Fix these first")]
    return rule, problems


def _asks_table(text: Any, stream: Stream) -> bool:
    """Whether a condition on events asks whether a value is in a table; what is no condition has its own problem."""
    try:
        return isinstance(text, str) and bool(tables_among(compile_predicate(text, stream.columns).columns))
    except PredicateError:
        return False


class _Anything:
    """Names when the measures cannot be read: any name may be one of them."""

    def __contains__(self, _name: object) -> bool:
        return True


class _Check:
    """Collects the problems of one rule."""

    def __init__(self, written: Mapping[str, Any], streams: Mapping[str, Stream], *, accepted: bool) -> None:
        self.written = written
        self.accepted = accepted
        self.streams = streams
        self.problems: list[Problem] = []
        self.tables: Mapping[str, FieldType] = {}

    def add(self, place: str, found: Any, message: str, remedy: str) -> None:
        self.problems.append(Problem(place, found if isinstance(found, str) else repr(found), message, remedy))

    # Shape

    def measures(self) -> dict[str, Measure | str]:
        """The measures that can be read; each is checked even if others cannot be."""
        written = self.written.get("measures", {})
        if not isinstance(written, Mapping):
            self.add("measures", written, "is not a mapping of measures", _EXAMPLES["measures"])
            return {}
        if len(written) > MAX_MEASURES:
            remedy = "Split the rule in two"
            self.add("measures", len(written), f"has {len(written)} measures, more than {MAX_MEASURES}", remedy)
            return {}
        found: dict[str, Measure | str] = {}
        for name, body in written.items():
            place = f"measures.{name}"
            if not is_usable_name(name):
                remedy = "Use letters, digits and _, as in spent_today, and no word of SQL such as AND or CASE"
                self.add(place, name, f"{name!r} cannot be the name of a measure", remedy)
            elif isinstance(body, str):
                found[name] = body
            elif not isinstance(body, Mapping):
                self.add(place, body, f"{body!r:.60} is not a measure", _EXAMPLES["measures"])
            elif measure := self.validated(Measure, body, ("measures", name)):
                found[name] = measure
            elif not set(body) & set(Function):  # only that was reported, and its options may be wrong too
                options = {key: value for key, value in body.items() if key in _MEASURE_OPTIONS}
                self.validated(Measure, {Function.COUNT.value: "*", **options}, ("measures", name))
        return found

    def validated(self, shape: type[Shape], body: Mapping[str, Any], place: tuple[str, ...]) -> Shape | None:
        try:
            return shape.model_validate(dict(body))
        except ValidationError as refusal:
            # finding a similar key takes a while, and a text may have thousands of unknown ones
            errors = refusal.errors(include_url=False)
            for error in errors[: MAX_PROBLEMS + 1]:
                self.add_shape(error, shape, place)
            return None

    def add_shape(self, error: ErrorDetails, shape: type[BaseModel], place: tuple[str, ...]) -> None:
        path = [str(part) for part in error["loc"]]
        key = path[0] if path else ""
        dotted = ".".join([*place, *path])
        match error["type"]:
            case "missing":
                self.add(dotted, "", "is missing", _EXAMPLES.get(key, ""))
            case "extra_forbidden" if key in ("action", "unless") and len(path) > 1:
                what = "is not a key of an action" if key == "action" else "is not a key of unless"
                self.add(dotted, error["input"], what, _EXAMPLES[key])
            case "extra_forbidden":
                if shape is Measure:
                    remedy = did_you_mean(key, _MEASURE_OPTIONS, "Beside its function it has")
                    self.add(dotted, error["input"], "is not an option of a measure", remedy)
                else:
                    remedy = did_you_mean(key, shape.model_fields, "Keys are")
                    self.add(dotted, error["input"], "is not a key of a rule", remedy)
            case "enum":
                expected = (error.get("ctx") or {}).get("expected", "")
                self.add(dotted, error["input"], f"is {error['input']!r:.60}", f"It is one of {expected}")
            case "value_error":
                what, _, remedy = str((error.get("ctx") or {}).get("error", error["msg"])).partition(". ")
                self.add(dotted, error["input"], what, remedy)
            case "string_type" if isinstance(error["input"], bool) and key in _TEXTS:
                word, read = ("yes", "true") if error["input"] else ("no", "false")
                what = f"is {read}, not text: YAML reads {word} without quotes as {read}"
                self.add(dotted, read, what, f'Put it in quotes, as in {key}: "{word}"')
            case "string_type" if isinstance(error["input"], int | float) and key in _TEXTS:
                example = f'as in {key}: "{error["input"]}"'
                self.add(dotted, error["input"], f"is {error['input']!r:.60}, not text", f"Put it in quotes, {example}")
            case _:
                self.add(dotted, error["input"], f"is {error['input']!r:.60}", _EXAMPLES.get(key, error["msg"]))

    # Meaning

    def meaning(self, measures: Mapping[str, Measure | str]) -> None:
        """Check against the stream; parts of a wrong shape have been reported already."""
        name = self.written.get("stream")
        if not isinstance(name, str):
            return
        stream = self.streams.get(name)
        if stream is None:
            remedy = did_you_mean(name, self.streams, "Declared are")
            self.add("stream", name, f"there is no stream {name!r}", remedy)
            return
        stream = self.looking_up(stream)
        self.tables = stream.tables
        self.fields("group_by", self.written.get("group_by"), stream)
        if self.written.get("action") is not None and self.written.get("group_by") == []:
            what, remedy = "has no group that its action could restrict", "Name the fields of the group to restrict"
            self.add("group_by", [], what, remedy)
        self.predicate("where", self.written.get("where"), stream.columns)
        if isinstance(self.written.get("unless"), Mapping):
            self.unless(self.written["unless"], measures, stream)
        if self.written.get("allows"):
            self.allows(measures)
        elif not self.accepted and ALLOWED_BY in measures:
            what = "is the name under which alerts have the allow rule that silences them"
            self.add(f"measures.{ALLOWED_BY}", ALLOWED_BY, what, "Give the measure another name")
        results: dict[str, FieldType] = {}
        lists: set[str] = set()
        aggregates = {name: measure for name, measure in measures.items() if isinstance(measure, Measure)}
        inner = {name: named_in(measure.where or "", measures) for name, measure in aggregates.items()}
        for measure_name, measure in measures.items():
            place = f"measures.{measure_name}"
            if measure_name in stream.fields:
                remedy = "Give the measure another name, so that the condition is clear"
                self.add(place, measure_name, f"stream {stream.name} has a field of that name", remedy)
            if isinstance(measure, str):
                continue
            if not inner[measure_name]:
                self.predicate(f"{place}.where", measure.where, stream.columns)
            if (result := self.measure(place, measure, stream)) is not None:
                results[measure_name] = result
            if measure.function.spec.is_list:
                lists.add(measure_name)
                results.pop(measure_name, None)
        self.nested(aggregates, inner, {**stream.columns, **results})
        written = self.written.get("measures", {})
        for measure_name, body in written.items() if isinstance(written, Mapping) else ():
            if measure_name not in measures and isinstance(body, Mapping):
                self.parts(f"measures.{measure_name}", body, stream)
        if "measures" not in self.written and get_close_matches("measures", map(str, self.written), 1):
            written = None  # under a mistyped key, which is a problem of its own
        # a measure without a type has its own problem already, which the condition does not repeat
        untyped = set(written) - set(results) - lists if isinstance(written, Mapping) else _Anything()
        self.computed(
            {name: text for name, text in measures.items() if isinstance(text, str)}, results, untyped, stream
        )
        untyped = untyped - set(results) if isinstance(untyped, set) else untyped
        self.predicate("when", self.written.get("when"), {**results, **stream.columns}, untyped)
        if isinstance(written, Mapping) and not self.accepted:
            due = [DUE] if self.written.get("unless") is not None else []
            self.description(self.written.get("description"), [*stream.fields, *map(str, written), *due])

    def looking_up(self, stream: Stream) -> Stream:
        """Check which tables are looked up by which fields; returns the stream with what can be."""
        written, usable = self.written.get("lookup"), dict[str, str]()
        for table, name in written.items() if isinstance(written, Mapping) else ():
            if not isinstance(table, str) or not isinstance(name, str):
                continue
            place, kind = f"lookup.{table}", stream.tables.get(table)
            if kind is None:
                declare = "Declare one as [tables.NAME] beside the streams"
                remedy = did_you_mean(table, stream.tables, "Tables are") if stream.tables else declare
                self.add(place, name, f"there is no table {table!r}", remedy)
            elif not values_of(kind):
                remedy = f'Ask it by {name} IN {table}, or declare what its rows have: values = {{country = "string"}}'
                self.add(place, name, f"table {table} has keys only, and no values", remedy)
            elif name not in stream.fields:
                self.unknown_field(place, name, stream)
            elif stream.fields[name].kind is not kind.kind:
                fitting = [each for each, other in stream.fields.items() if other.kind is kind.kind]
                remedy = f"Fields of that type are {', '.join(fitting)}" if fitting else "The stream has no such field"
                what = f"a key of table {table} is {kind}, and {name} is {stream.fields[name]}"
                self.add(place, name, what, remedy)
            else:
                usable[table] = name
        return stream.looking_up(usable)

    def allows(self, measures: Mapping[str, Measure | str]) -> None:
        """Check what does not go with silencing others (S24)."""
        for key in OF_ALERTS:
            if self.written.get(key) not in (None, False):
                what = "is of rules that have alerts, and one with allows has none"
                self.add(key, self.written[key], what, "Leave it out")
        for name, measure in measures.items():
            if isinstance(measure, Measure) and measure.over_alerts:
                what = "does not go with allows; one level of rules that look at others is possible"
                remedy = "Count events, or leave one of them out"
                self.add(f"measures.{name}.over_alerts", ", ".join(measure.over_alerts), what, remedy)
            if isinstance(measure, Measure) and measure.resolution is not None:
                what = (
                    "does not go with allows, which holds or not for as long as the alerts that it silences may change"
                )
                self.add(
                    f"measures.{name}.resolution", format_duration(measure.resolution), what, "Leave resolution out"
                )

    def unless(self, written: Mapping[str, Any], measures: Mapping[str, Measure | str], stream: Stream) -> None:
        """Check what must not follow, and what does not go with waiting for it (S19)."""
        self.predicate("unless.where", written.get("where"), stream.columns)
        if self.written.get("reset_after_alert") is True:
            what = "does not go with unless: whether an event is a violation would then depend on later ones"
            self.add("reset_after_alert", "true", what, "Leave one of them out")
        for name, measure in measures.items():
            if isinstance(measure, Measure) and measure.over_alerts:
                what = "does not go with unless: whether other rules are violated is known before what follows"
                self.add(f"measures.{name}.over_alerts", ", ".join(measure.over_alerts), what, "Leave one of them out")
            if isinstance(measure, Measure) and measure.resolution is not None:
                what = "does not go with unless, which evaluates events once the stream has folded those before them"
                self.add(
                    f"measures.{name}.resolution", format_duration(measure.resolution), what, "Leave resolution out"
                )
        for name in (DUE,) if DUE in measures or DUE in stream.fields else ():
            what = "is the name under which alerts of a rule with unless have the time when they became due"
            place = f"measures.{name}" if name in measures else "unless"
            self.add(place, name, what, "Give the measure, or a derived field of the stream, another name")

    def nested(
        self, aggregates: Mapping[str, Measure], inner: Mapping[str, frozenset[str]], columns: Mapping[str, FieldType]
    ) -> None:
        """Check each `where` that looks at other measures. inner: at which; columns: of fields and aggregates."""
        for name, read in inner.items():
            place, measure = f"measures.{name}.where", aggregates[name]
            found = (self.unusable(measure, each, aggregates.get(each), inner.get(each)) for each in sorted(read))
            problem = next((each for each in found if each is not None), None)
            if problem is not None:
                self.add(place, measure.where, *problem)
            elif read:
                known = {column: kind for column, kind in columns.items() if column in read or column not in inner}
                self.predicate(place, measure.where, known, read)

    def unusable(
        self, measure: Measure, name: str, other: Measure | None, inner: frozenset[str] | None
    ) -> tuple[str, str] | None:
        """What is wrong, and the remedy, where a measure's `where` may not look at another, which looks at `inner`."""
        if other is measure:
            return "looks at the measure itself", "Name other measures"
        if other is None:
            what = f"looks at {name!r}, which is computed; where may only look at measures over windows"
            return what, "Write its expression here"
        if inner:
            what = f"looks at {name!r}, which looks at measures itself; one level is possible"
            return what, "Name measures whose where compares fields only"
        if other.function.spec.is_list:
            what = f"looks at {name!r}, a list of values, which only the alert shows"
            return what, "Compare a count_distinct of the same field"
        if other.over_alerts or measure.over_alerts:
            what = f"looks at {name!r}, which does not go with over_alerts"
            return what, "Compare both in when, or name fields only"
        if other.resolution is not None or measure.resolution is not None:
            what = f"looks at {name!r}, which does not go with a resolution: folded events cannot be looked at again"
            return what, "Leave resolution out of both"
        if self.written.get("reset_after_alert") is True:
            return f"looks at {name!r}, which does not go with reset_after_alert", "Leave one of them out"
        if self.written.get("unless") is not None:
            return f"looks at {name!r}, which does not go with unless", "Leave one of them out"
        return None

    def computed(
        self, texts: Mapping[str, str], results: dict[str, FieldType], untyped: Container[str], stream: Stream
    ) -> None:
        """Check computed measures, and add their types to those of the others. untyped: names without a type so far."""
        try:
            texts = in_order(texts)
        except ValueError as cycle:
            first = str(cycle).partition(" ")[0]
            what, remedy = f"depends on itself: {cycle}", "Compute it from fields and other measures"
            self.add(f"measures.{first}", texts[first], what, remedy)
            return
        for name, text in texts.items():
            place, columns = f"measures.{name}", {**results, **stream.columns}
            try:
                kind = check_value(text, columns, where=place, unknown=untyped, strict=not self.accepted)
                if kind is not None:
                    results[name] = type_of_value(kind)
            except PredicateError as refusal:
                self.explain(refusal, columns, measured=True)
            except DeclarationError as refusal:
                self.add(place, text, refusal.what, refusal.remedy)

    def description(self, text: Any, known: list[str]) -> None:
        if not isinstance(text, str):
            return
        for found, what, remedy in islice(mistaken_placeholders(text, known), MAX_PROBLEMS):
            self.add("description", found, what, remedy)

    def measure(self, place: str, measure: Measure, stream: Stream) -> FieldType | None:
        """The measure's type; None if its function does not take the field."""
        self.fields(f"{place}.per", list(measure.per), stream)
        self.predicate(f"{place}.since", measure.since, stream.columns)
        self.predicate(f"{place}.until", measure.until, stream.columns)
        for step in measure.steps:
            self.predicate(f"{place}.{measure.function}", step, stream.columns)
        if measure.resolution is not None:
            self.resolution(f"{place}.resolution", measure, stream)
        if measure.field is None:
            return result_type(measure.function, None)
        return self.result(f"{place}.{measure.function}", measure.function, measure.field, stream)

    def resolution(self, place: str, measure: Measure, stream: Stream) -> None:
        """Check what a measure with resolution takes to fold (S14.2)."""
        text = format_duration(measure.resolution or 0)
        kind = None if measure.field is None else stream.fields.get(measure.field)
        if kind is not None and kind.kind is Kind.DOUBLE and not measure.function.spec.folds_doubles:
            what = f"does not go with {measure.function} of a double, whose exact sums are too large to keep"
            self.add(place, text, what, "Declare the field as a decimal, or leave resolution out")
        if self.written.get("reset_after_alert") is True:
            what = "does not go with reset_after_alert, which starts a measure again within a step"
            self.add(place, text, what, "Leave one of them out")
        group_by = self.written.get("group_by")
        if isinstance(group_by, list | tuple) and stream.event_id in group_by:
            what = f"does not go with a group by {stream.event_id}, which has one event"
            self.add(place, text, what, "Leave resolution out")
        if stream.tables and any(_asks_table(text, stream) for text in (self.written.get("where"), measure.where)):
            what = "does not go with tables: of a step no row says what the tables had for its events"
            self.add(place, text, what, "Leave resolution out")

    def parts(self, place: str, body: Mapping[str, Any], stream: Stream) -> None:
        """Check the parts of a measure that cannot be read as a whole."""
        for function in Function:
            for step in steps_under(function, body.get(function.value)):
                self.predicate(f"{place}.{function}", step, stream.columns)
            for field in fields_under(function, body.get(function.value)) if "over_alerts" not in body else ():
                self.result(f"{place}.{function}", function, field, stream)
        self.fields(f"{place}.per", body.get("per"), stream)
        self.predicate(f"{place}.where", body.get("where"), stream.columns)
        self.predicate(f"{place}.since", body.get("since"), stream.columns)
        self.predicate(f"{place}.until", body.get("until"), stream.columns)

    def result(self, place: str, function: Function, field: str, stream: Stream) -> FieldType | None:
        """The type of a function of a field; None if it does not take the field."""
        declared = stream.fields.get(field)
        if declared is None:
            self.unknown_field(place, field, stream)
            return None
        kinds = function.spec.takes
        if declared.kind not in kinds:
            fitting = [name for name, kind in stream.fields.items() if kind.kind in kinds]
            remedy = f"Fields it takes are {', '.join(fitting)}" if fitting else "The stream has no field it takes"
            self.add(place, field, f"{function} cannot take {field}: {declared}", remedy)
            return None
        return result_type(function, declared)

    def fields(self, place: str, names: Any, stream: Stream) -> None:
        if not isinstance(names, list | tuple) or len(names) > MAX_FIELDS:
            return
        for name in names:
            if isinstance(name, str) and name not in stream.fields:
                self.unknown_field(place, name, stream)
        texts = [name for name in names if isinstance(name, str)]
        if len(set(texts)) < len(texts):
            self.add(place, names, "names a field twice", "Name each field once")

    def unknown_field(self, place: str, name: str, stream: Stream) -> None:
        remedy = did_you_mean(name, stream.fields, "Fields are")
        self.add(place, name, f"stream {stream.name} has no field {name!r}", remedy)

    def predicate(self, place: str, text: Any, columns: Mapping[str, FieldType], untyped: Container[str] = ()) -> None:
        if not isinstance(text, str):
            return
        try:
            check_predicate(text, columns, where=place, unknown=untyped, strict=not self.accepted)
        except PredicateError as refusal:
            self.explain(refusal, columns)

    def explain(self, refusal: PredicateError, columns: Mapping[str, FieldType], *, measured: bool = False) -> None:
        """Add the problems of a condition or expression."""
        for problem in refusal.problems:
            table, is_value, _ = problem.found.partition(".")
            if not is_value or table not in self.tables or problem.message != unknown_name(problem.found):
                self.problems.append(self.explained(problem, columns, measured=measured))
            elif (found := self.of_value(problem)) is not None:
                self.problems.append(found)

    def of_value(self, problem: Problem) -> Problem | None:
        """The problem with a value of a table, reworded; None if it follows from one of the lookup."""
        table, _, value = problem.found.partition(".")
        values, written = values_of(self.tables[table]), self.written.get("lookup")
        if not values:
            what, remedy = f"table {table} has keys only, and no values", f"Ask whether it has one, by IN {table}"
        elif not isinstance(written, Mapping) or table not in written:
            what = f"the rule does not look up table {table}"
            remedy = f"Name the event's field that is the key, as in lookup: {{{table}: FIELD}}"
        elif value not in values:
            what, remedy = f"table {table} has no value {value!r}", did_you_mean(value, values, "Values are")
        else:
            return None
        return replace(problem, message=what, remedy=remedy)

    def explained(self, problem: Problem, columns: Mapping[str, FieldType], *, measured: bool = False) -> Problem:
        """The problem, reworded if the unknown name is that of a measure, in an event's condition or where measures are
        known (measured) but lists."""
        measures = self.written.get("measures")
        name = problem.found
        known = isinstance(measures, Mapping) and name in measures and name not in columns
        if not known or problem.message != unknown_name(name):
            return problem
        key = problem.place.rpartition(".")[2]
        if key == "when" or measured:
            return replace(
                problem,
                message=f"{name!r} is a list of values, which only the alert shows",
                remedy="Compare a count_distinct of the same field",
            )
        what = f"{name!r} is a measure, and {key} is met or not by an event alone"
        return replace(problem, message=what, remedy=f"Use measures in when; {key} compares fields")
