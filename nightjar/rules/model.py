"""Rules: what to look for in a stream, read from YAML or JSON and checked against the stream's declaration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictStr, ValidationInfo, field_validator

from nightjar.rules.absence import Unless
from nightjar.rules.actions import Action
from nightjar.rules.allowing import EVERY_RULE
from nightjar.rules.checking import MAX_MEASURES, check_rule
from nightjar.rules.computed import in_order, type_of_value
from nightjar.rules.descriptions import PLACEHOLDER
from nightjar.rules.documents import MAX_BYTES, read_documents, refusal, unwrapped
from nightjar.rules.durations import MICROSECONDS, Duration, format_duration
from nightjar.rules.errors import DeclarationError, Problem, RuleError, printable, shortened
from nightjar.rules.functions import result_type
from nightjar.rules.measures import MAX_FIELDS, MAX_NAMED, Measure
from nightjar.rules.names import RULE_ID, TAG, named_in
from nightjar.rules.over_alerts import problems as misnamed
from nightjar.rules.predicates import compile_value
from nightjar.rules.states import Revisions, Severity, State
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import from_microseconds, parse_timestamp
from nightjar.rules.types import FieldType

__all__ = [
    "MAX_MEASURES",
    "PLACEHOLDER",
    "Measure",
    "Revisions",
    "Rule",
    "Severity",
    "State",
    "load_rules",
    "measure_types",
    "parse_rule",
    "rule_to_mapping",
]


# A limit on a description, so that every alert fits in one Kafka record.
_MAX_PLACEHOLDERS = 64

# Characters; both are shown in one line of a table.
MAX_AUTHOR = 100
MAX_REASON = 500
# Keys of a rule that describe the origin of a version; publishing a rule again with only these changed has no effect.
PROVENANCE = ("author", "reason")

# So that no sum of scores of any window leaves 64 bits.
MAX_SCORE = 1_000_000
MAX_TAGS = 16

# Alerts are muted within a date.
MAX_MUTE = MICROSECONDS["d"]

_EXAMPLE = "2018-04-01T12:00:00Z"


def _instant(value: Any) -> Any:
    """A point in time from YAML or JSON; without a zone it is UTC."""
    if isinstance(value, datetime):
        try:
            return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        except OverflowError:
            raise ValueError(f"{value} lies outside of the years 1 to 9999 in UTC. Write it like {_EXAMPLE}") from None
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    if isinstance(value, str) and (found := parse_timestamp(value, zone_required=False)) is not None:
        return from_microseconds(found)
    raise ValueError(f"{value!r} is not a point in time. Write it like {_EXAMPLE}")


class Rule(BaseModel):
    """A rule as people write it. `parse_rule` checks it against its stream; the class checks only its shape."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Annotated[
        StrictStr,
        Field(
            pattern=f"^{RULE_ID}$",
            description="The rule's name: lower-case letters, digits, `.`, `_`, `-`; at most 100 characters.",
        ),
    ]
    stream: Annotated[
        StrictStr, Field(description="The stream it watches, as declared. A rule keeps its stream for life.")
    ]
    state: Annotated[
        State,
        Field(
            description="`active`; `shadow` (alerts are marked as trial); `paused` (no alerts, keeps its history); "
            "`retired` (ended, keeps no state)."
        ),
    ] = State.ACTIVE
    shadow_of: Annotated[
        StrictStr | None,
        Field(
            pattern=f"^{RULE_ID}$",
            description="Of a shadow rule: the id of the live rule that it is to replace. Every night compares their "
            "alerts.",
        ),
    ] = None
    group_by: Annotated[
        tuple[StrictStr, ...],
        Field(
            max_length=MAX_FIELDS,
            description=f"Fields whose values make a group, at most {MAX_FIELDS}. `[]`: the whole stream is one group. "
            "An event with NULL in one of them belongs to no group.",
        ),
    ]
    lookup: Annotated[
        dict[StrictStr, StrictStr],
        Field(
            max_length=MAX_FIELDS,
            description="Tables with values, each with the field that is its key, as in `{cards: card_id}`: conditions "
            "and computed measures can then name what the table has for the event, as in `cards.country <> country`. "
            f"At most {MAX_FIELDS}.",
        ),
    ] = {}
    where: Annotated[
        StrictStr | None,
        Field(description="The events that the rule sees at all: others are neither counted nor evaluated."),
    ] = None
    measures: Annotated[
        dict[str, Measure | StrictStr],
        Field(
            max_length=MAX_MEASURES,
            description="Name → measure, or an expression over fields and other measures; at most "
            f"{MAX_MEASURES} measures. A name must not be that of a field.",
        ),
    ] = {}
    when: Annotated[
        StrictStr,
        Field(description="The condition, over fields and measures. An event for which it holds is a violation."),
    ]
    unless: Annotated[
        Unless | None,
        Field(
            description="What must not follow, as in `{within: 15m, where: \"status = 'PAID'\"}`: an event for which "
            "`when` holds is a violation once that time has passed without such an event of the group."
        ),
    ] = None
    allows: Annotated[
        tuple[Annotated[StrictStr, Field(pattern=rf"^(({TAG})?{RULE_ID}|\*)$")], ...],
        Field(
            max_length=MAX_NAMED,
            description='`[card-velocity, tag:geo]`, or `["*"]` for all: the rule has no alerts, and silences those '
            "of these rules, and of those with these tags. Where `when` holds at an event, their alerts of that event "
            "are muted, start no mute and no action, and name this rule as `allowed_by`; at most "
            f"{MAX_NAMED}. They have the rule's stream and group-by.",
        ),
    ] = ()
    reset_after_alert: Annotated[
        bool,
        Field(
            strict=True,
            description="`true`: after each violation in a group the measures start again. Only events after the "
            "group's latest violation of this version count.",
        ),
    ] = False
    severity: Annotated[Severity, Field(description="`low`, `medium`, `high` or `critical`; part of the alert.")] = (
        Severity.MEDIUM
    )
    score: Annotated[
        Annotated[int, Field(strict=True, ge=-MAX_SCORE, le=MAX_SCORE)] | None,
        Field(
            description="The points of a violation, for measures of other rules with `sum: score` and `over_alerts`: a "
            f"whole number, at most {MAX_SCORE:,}. It may be negative. Without it a violation has none."
        ),
    ] = None
    tags: Annotated[
        tuple[Annotated[StrictStr, Field(pattern=f"^{RULE_ID}$")], ...],
        Field(
            max_length=MAX_TAGS,
            description=f"Names by which measures of other rules find this one, as in `tag:geo`; at most {MAX_TAGS}.",
        ),
    ] = ()
    description: Annotated[
        StrictStr,
        Field(
            max_length=4096,
            description="The alert's text, at most 4096 characters. `{name}` of a field or measure is filled in, at "
            f"most {_MAX_PLACEHOLDERS} of them with 200 characters each (lists of values are whole); doubles are shown "
            "with two digits after the point (`measures` has all digits). Another name in braces is refused.",
        ),
    ] = ""
    action: Annotated[
        Action | None,
        Field(
            description="What alerts lead to, as in `{restrict: block_customer, for: 24h}`: a record on the "
            "restrictions topic for their group, lifted where the alert is retracted. Not of shadow rules."
        ),
    ] = None
    revisions: Annotated[
        Revisions,
        Field(
            description="What revises an alert: `values`, each change of its measures, so that an alert always shows "
            "what the events give; `verdict`, only whether it holds: it keeps the values that were announced first."
        ),
    ] = Revisions.VALUES
    mute: Annotated[
        Duration | None,
        Field(
            description=f"Alerts within this time after an unmuted one of the same group and UTC date are marked "
            f"`muted`, as in `30m`; at most {format_duration(MAX_MUTE)}. They are published, counted and corrected "
            "like others."
        ),
    ] = None
    effective: Annotated[
        Annotated[datetime, BeforeValidator(_instant)] | None,
        Field(
            description="Event time from which this version applies. Without it: arrival of the message plus the "
            "setting `activation_delay`; in `nightjar evaluate`, from the beginning."
        ),
    ] = None
    author: Annotated[
        Annotated[StrictStr, Field(max_length=MAX_AUTHOR)] | None,
        Field(
            description=f"Who published this version: one line, at most {MAX_AUTHOR} characters. Shown by `nightjar "
            "rules list` and kept in the lake. Another author alone makes no new version.",
        ),
    ] = None
    reason: Annotated[
        Annotated[StrictStr, Field(max_length=MAX_REASON)] | None,
        Field(
            description=f"Why this version was published: one line, at most {MAX_REASON} characters. Treated like "
            "`author`.",
        ),
    ] = None

    @field_validator("description")
    @classmethod
    def _short(cls, description: str) -> str:
        if (named := len(PLACEHOLDER.findall(description))) > _MAX_PLACEHOLDERS:
            raise ValueError(f"names {named} values, more than {_MAX_PLACEHOLDERS}. Name those that matter")
        return description

    @field_validator("mute")
    @classmethod
    def _within_a_date(cls, mute: int | None) -> int | None:
        if mute is not None and not 0 < mute <= MAX_MUTE:
            found, most = format_duration(mute), format_duration(MAX_MUTE)
            raise ValueError(f"{found} cannot mute. It is longer than 0 and at most {most}")
        return mute

    @field_validator("allows")
    @classmethod
    def _each_once(cls, named: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(named)) < len(named):
            raise ValueError("names a rule or tag twice. Name each once")
        return named

    @field_validator("shadow_of")
    @classmethod
    def _other(cls, rule_id: str | None, info: ValidationInfo) -> str | None:
        if rule_id is not None and rule_id == info.data.get("id"):
            raise ValueError("is the rule itself. A shadow rule has an id of its own; name the live rule")
        return rule_id

    @field_validator("author", "reason")
    @classmethod
    def _one_line(cls, text: str | None) -> str | None:
        if text is not None and not text.isprintable():
            raise ValueError(f"{printable(shortened(text, 60))!r} has control characters. Write one line of text")
        return text

    @property
    def aggregates(self) -> dict[str, Measure]:
        """The measures over windows, by name."""
        return {name: measure for name, measure in self.measures.items() if isinstance(measure, Measure)}

    @property
    def over_alerts(self) -> dict[str, Measure]:
        """Those of them that are over violations of other rules (S23)."""
        return {name: measure for name, measure in self.aggregates.items() if measure.over_alerts}

    @property
    def allowed_ids(self) -> list[str]:
        """The ids among what an allow rule names."""
        return [each for each in self.allows if each != EVERY_RULE and not each.startswith(TAG)]

    @property
    def names_others(self) -> bool:
        """Whether it counts violations of other rules, or silences their alerts."""
        return bool(self.allows or self.over_alerts)

    @property
    def computed(self) -> dict[str, str]:
        """The measures that are expressions over fields and other measures, by name."""
        return {name: measure for name, measure in self.measures.items() if isinstance(measure, str)}

    @property
    def inner(self) -> dict[str, frozenset[str]]:
        """Of each measure whose `where` looks at other measures (S18.3) the names of these."""
        found = {
            name: named_in(measure.where, self.measures)
            for name, measure in self.aggregates.items()
            if measure.where is not None
        }
        return {name: read for name, read in found.items() if read}

    def __eq__(self, other: object) -> bool:
        """Whether both have the same results. Author and reason make no difference."""
        return isinstance(other, Rule) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash((self.id, self.when))

    def _content(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in PROVENANCE}


def parse_rule(
    written: Mapping[str, Any] | str | bytes, streams: Mapping[str, Stream], *, accepted: bool = False
) -> Rule:
    """The rule of a mapping, or of a YAML or JSON text that holds one.

    accepted: a version of it was accepted before, maybe by an earlier release: only that it fits its stream is checked,
    and not what new rules are refused for in addition.

    Raises:
        RuleError: it is not valid; each problem has its place (`measures.spent.sum`), the value found there, and the
            remedy.
    """
    if isinstance(written, str | bytes):
        documents = read_documents(written, where="the rule")
        if len(documents) != 1:
            raise refusal(f"holds {len(documents)} documents", "One rule is expected", "the rule")
        written = documents[0]
    if not isinstance(written, Mapping):
        raise refusal(f"is not a mapping but {written!r:.60}", "A rule has keys: id, stream, when, …", "the rule")
    rule, problems = check_rule(Rule, written, streams, accepted=accepted)
    if problems or rule is None:
        name = written.get("id")
        raise RuleError(problems, where=f"rule {name}" if isinstance(name, str) else "the rule")
    return rule


def load_rules(path: str | Path, streams: Mapping[str, Stream]) -> list[Rule]:
    """The rules of a YAML or JSON file: one, a list, `rules: [...]`, or several YAML documents of these forms.

    Raises:
        RuleError: with the problems of all rules; a place then starts with the rule's id, or its number from 1.
    """
    path = Path(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise refusal(f"has more than {MAX_BYTES} bytes", "Split it into several files", str(path))
        text = path.read_bytes()
    except OSError as failure:
        what = f"cannot be read ({failure.strerror or failure})"
        raise refusal(what, "Give the path of a YAML or JSON file", str(path)) from None
    return parse_rules(text, streams, where=str(path))


def parse_rules(text: str | bytes, streams: Mapping[str, Stream], *, where: str) -> list[Rule]:
    """The rules of a YAML or JSON text; raises as `load_rules`. where: what the text is called in errors."""
    documents = read_documents(text, where=where)
    if any(isinstance(each, Mapping) and "steps" in each and "when" not in each for each in documents):
        raise refusal(
            "is a case, not a rule", "Run it with `nightjar simulate`, or `nightjar rules test --cases`", where
        )
    return rules_of(unwrapped(documents), streams, where=where)


def rules_of(written_rules: Iterable[Any], streams: Mapping[str, Stream], *, where: str) -> list[Rule]:
    """The rules of written ones, as mappings; raises as `load_rules`. where: what they are called in errors."""
    rules: list[Rule] = []
    problems: list[Problem] = []
    for number, written in enumerate(written_rules, 1):
        name = written.get("id") if isinstance(written, Mapping) else None
        place = f"rule {name}" if isinstance(name, str) else f"rule number {number}"
        try:
            rule = parse_rule(written, streams)
        except RuleError as failure:
            problems += [
                Problem(f"{place}, {found.place}".rstrip(", "), found.found, found.message, found.remedy, found.excerpt)
                for found in failure.problems
            ]
            continue
        if any(rule.id == other.id for other in rules):
            problems.append(Problem(f"{place}, id", rule.id, "is used by two rules", "Give each rule an id of its own"))
        rules.append(rule)
    for rule in rules:
        problems += [replace(found, place=f"rule {rule.id}, {found.place}") for found in misnamed(rule, rules)]
    if problems:
        raise RuleError(problems, where=where)
    if not rules:
        raise refusal("holds no rule", "Write one, a list of them, or rules: [...]", where)
    return sorted(rules, key=lambda rule: rule.names_others)  # each after those that it names


def measure_types(rule: Rule, stream: Stream) -> dict[str, FieldType]:
    """The types of a rule's measures, by name.

    Raises:
        RuleError: a computed one has none, since the stream has been declared otherwise.
    """
    aggregates = rule.aggregates
    stream = stream.looking_up(rule.lookup)
    types = {
        name: result_type(measure.function, None if measure.field is None else stream.fields[measure.field])
        for name, measure in aggregates.items()
    }
    for name, text in in_order(rule.computed).items():
        found = compile_value(text, {**stream.columns, **types}, where=f"rule {rule.id}: measures.{name}", strict=False)
        try:
            types[name] = type_of_value(found.type)
        except DeclarationError as refusal:
            problem = Problem(f"measures.{name}", text, refusal.what, refusal.remedy)
            raise RuleError([problem], where=f"rule {rule.id}") from None
    return {name: types[name] for name in rule.measures}


def rule_to_mapping(rule: Rule) -> dict[str, Any]:
    """The written form of a rule, in plain JSON types, without default values; `parse_rule` reads it back."""
    written = rule.model_dump(mode="json", exclude_defaults=True, by_alias=True)
    return {"id": written.pop("id"), "stream": written.pop("stream"), "state": rule.state.value, **written}


def rule_from_mapping(written: Mapping[str, Any]) -> Rule:
    """The rule that `rule_to_mapping` wrote: only its shape is checked, so that an accepted rule stays accepted.

    Raises:
        ValueError: it has another shape.
    """
    return Rule.model_validate(dict(written))
