"""The entries of the catalogue, read from their files."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nightjar.cases import Case, read_case
from nightjar.cases.documents import json_text, read_yaml
from nightjar.rules.descriptions import PLACEHOLDER
from nightjar.rules.durations import format_duration
from nightjar.rules.errors import SettingsError, shortened
from nightjar.rules.functions import Function
from nightjar.rules.lateness import SHIPPED
from nightjar.rules.measures import fields_under, steps_under
from nightjar.rules.model import Rule, parse_rule, rule_to_mapping
from nightjar.rules.names import did_you_mean
from nightjar.rules.retention import folds, kept_for
from nightjar.rules.streams import Stream, streams_from_mapping
from nightjar.rules.timestamps import MIN_TIMESTAMP
from nightjar.rules.versions import RuleSet

FOLDER = Path(__file__).resolve().parent
STREAMS = FOLDER / "streams.toml"
_FIELDS = FOLDER / "fields.toml"
_RULES = FOLDER / "rules"

# The first tag of an entry is its area; the others say which kind of fraud, or how the rule looks for it.
AREAS: Mapping[str, str] = MappingProxyType(
    {
        "card": "Payments and withdrawals by card, seen by the card, its holder or the device",
        "merchant": "What happens at a merchant, whoever pays there",
        "refund": "Money that goes back to cards",
        "transfer": "Money that moves between accounts",
        "account": "Logins, sign-ups and changes of an account",
    }
)
TAGS: Mapping[str, str] = MappingProxyType(
    {
        **AREAS,
        "velocity": "Too many events, or different values, in a short time",
        "testing": "Stolen card numbers are tried, to see which of them work",
        "stolen-card": "A card, or its number, is used by somebody else",
        "takeover": "An account is used by somebody else",
        "travel": "Two places that nobody can be at within that time, or that do not fit together",
        "first-time": "Something that the card, customer or account has not done before",
        "anomaly": "A value far from what is usual there",
        "scam": "The holder is deceived into paying",
        "mule": "An account that passes on the money of others",
        "laundering": "Payments made to hide where money comes from",
        "collusion": "The merchant, or somebody who works there, takes part",
        "abuse": "Customers who exploit what is meant for honest ones",
    }
)

# The texts of an entry, with their headings.
TEXTS: Mapping[str, str] = MappingProxyType(
    {
        "finds": "What it finds",
        "thresholds": "Why these thresholds",
        "false_positives": "False positives to expect",
        "tuning": "What to tune",
    }
)
# The keys of a measure that are predicates.
CONDITIONS = ("where", "since", "until")

# A name in a predicate, or a text in quotes, in which there are no names.
_NAME_OR_TEXT = re.compile(r"'(?:[^']|'')*'|[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


@dataclass(frozen=True)
class Entry:
    """A rule of the catalogue.

    finds: the behaviour that it looks for. thresholds: why they are what they are. false_positives: which honest
    behaviour alerts, too. tuning: what to change, and when. declaration: of the stream, with the keys of the TOML file.
    meanings: of all fields of the stream. history, steps, expect: of its case, as written.
    beside: rules of its case whose alerts it looks at.
    """

    title: str
    tags: tuple[str, ...]
    finds: str
    thresholds: str
    false_positives: str
    tuning: str
    rule: Rule
    stream: Stream
    declaration: Mapping[str, Any]
    meanings: Mapping[str, str]
    history: str
    steps: tuple[Any, ...]
    expect: Mapping[str, Any]
    beside: tuple[Rule, ...] = ()

    @property
    def id(self) -> str:
        """The rule's id."""
        return self.rule.id

    @property
    def area(self) -> str:
        """One of AREAS."""
        return self.tags[0]

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of the stream that the rule reads, and those beside it, in the order of their declaration."""
        read = {name for rule in (self.rule, *self.beside) for name in names_of(rule_to_mapping(rule))}
        return tuple(name for name in self.stream.fields if name in read)

    @property
    def retention(self) -> str:
        """What the job keeps for the rule, in a sentence."""
        length = max(map(kept_for, RuleSet.of((*self.beside, self.rule), MIN_TIMESTAMP).versions))
        parts = [f"the stream's events of {format_duration(length)}"] if length else []
        parts += ["a row per group and step for windows with a resolution"] if folds(self.rule) else []
        return f"The job keeps {', and '.join(parts)}."

    @cached_property
    def case(self) -> Case:
        """The case: the rule is published at the beginning."""
        return read_case(json_text(self.case_document), f"catalogue: {self.id}")

    @property
    def case_document(self) -> dict[str, Any]:
        """The whole content of the case's file."""
        return {
            "title": self.title,
            "description": self.history,
            "streams": {self.stream.name: dict(self.declaration)},
            "settings": {"activation_delay": "0s"},
            "steps": [{"at": "0m", "rules": [*map(rule_to_mapping, (*self.beside, self.rule))]}, *self.steps],
            "expect": dict(self.expect),
        }


def names_in(predicate: str) -> Iterator[str]:
    """The names in a predicate: of columns and functions, and words of SQL."""
    return (found for found in _NAME_OR_TEXT.findall(predicate) if not found.startswith("'"))


def replaced_names(predicate: str, names: Mapping[str, str]) -> str:
    """The predicate with these names instead of those; texts in quotes stay."""
    return _NAME_OR_TEXT.sub(lambda found: names.get(found[0], found[0]), predicate)


def names_of(rule: Mapping[str, Any]) -> Iterator[str]:
    """The names that a rule's written form reads, in its text too; those of fields are among them."""
    yield from rule["group_by"]
    yield from names_in(rule["when"])
    yield from names_in(rule.get("where", ""))
    yield from names_in(rule.get("unless", {}).get("where", ""))
    yield from PLACEHOLDER.findall(rule.get("description", ""))
    for measure in rule.get("measures", {}).values():
        if isinstance(measure, str):
            yield from names_in(measure)
            continue
        yield from measure.get("per", ())
        for key, value in measure.items():
            if key in CONDITIONS:
                yield from names_in(value)
            elif key in set(Function):
                yield from fields_under(Function(key), value)
                for step in steps_under(Function(key), value):
                    yield from names_in(step)


@cache
def catalogue() -> tuple[Entry, ...]:
    """All entries, by area and id."""
    areas = list(AREAS)
    return tuple(sorted(_read(), key=lambda entry: (areas.index(entry.area), entry.id)))


def entry_named(rule_id: str) -> Entry:
    """One entry.

    Raises:
        SettingsError: there is none of this id.
    """
    entries = {entry.id: entry for entry in catalogue()}
    if rule_id not in entries:
        remedy = did_you_mean(rule_id, entries, "Rules are")
        raise SettingsError("is not a rule of the catalogue", where=shortened(rule_id), remedy=remedy)
    return entries[rule_id]


def tagged(tag: str) -> list[Entry]:
    """The entries that have a tag.

    Raises:
        SettingsError: it is not one of TAGS.
    """
    if tag not in TAGS:
        raise SettingsError("is not a tag", where=shortened(tag), remedy=did_you_mean(tag, TAGS, "Tags are"))
    return [entry for entry in catalogue() if tag in entry.tags]


def _read() -> Iterator[Entry]:
    declarations = _toml(SHIPPED)["streams"] | _toml(STREAMS)["streams"]
    streams, meanings = streams_from_mapping(declarations, str(STREAMS)), _toml(_FIELDS)
    for file in sorted(_RULES.glob("*.yaml")):
        written = read_yaml(file.read_bytes(), str(file))
        every = (written["rule"], *written.get("beside", ()))
        rule, *beside = (parse_rule(json.loads(json_text(each)), streams) for each in every)
        yield Entry(
            title=written["title"],
            tags=tuple(written["tags"]),
            **{key: _one_line(written[key]) for key in TEXTS},
            rule=rule,
            stream=streams[rule.stream],
            declaration=declarations[rule.stream],
            meanings=meanings[rule.stream],
            history=_one_line(written["case"]["description"]),
            steps=tuple(written["case"]["steps"]),
            expect=written["case"]["expect"],
            beside=tuple(beside),
        )


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _toml(file: Path) -> dict[str, Any]:
    return tomllib.loads(file.read_text(encoding="utf-8"))
