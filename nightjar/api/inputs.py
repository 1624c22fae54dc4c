"""What the functions of the API take: rules, streams, events and days in the forms that people have them in."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from nightjar.api.tables import arrow_table
from nightjar.configuration.settings import load_settings
from nightjar.files.event_files import doubtful_times, events_of_table, read_events
from nightjar.rules.documents import unwrapped
from nightjar.rules.errors import SettingsError
from nightjar.rules.model import Rule, load_rules, parse_rules, rule_to_mapping, rules_of
from nightjar.rules.streams import Stream, load_streams, streams_from_mapping
from nightjar.rules.unions import united
from nightjar.rules.zones import zone_named

Rules = Path | str | Mapping[str, Any] | Rule | Iterable[Mapping[str, Any] | Rule]
"""A file (a `Path`, or text that ends in .yaml, .yml or .json), a YAML or JSON text, or one or several mappings."""
Streams = Path | str | Mapping[str, Stream] | Mapping[str, Mapping[str, Any]] | None
"""A TOML file, or declarations by name; None: those of the settings."""

_RULES, _STREAMS = "rules", "streams"  # what they are called in errors
_YAML = (".yaml", ".yml", ".json")


def is_file_name(text: str) -> bool:
    """Whether a text is the name of a file, rather than what such a file holds."""
    return "\n" not in text and text.lower().endswith(_YAML)


def streams_from(streams: Streams) -> Mapping[str, Stream]:
    """The declared streams.

    Raises:
        DeclarationError, SettingsError: they cannot be used.
    """
    if streams is None:
        return load_streams(load_settings().streams)
    if isinstance(streams, Path | str):
        return load_streams(streams)
    given: Any = streams
    if not isinstance(given, Mapping):
        remedy = "Give a file, or declarations by name"
        raise SettingsError(f"are a {type(streams).__name__}", where=_STREAMS, remedy=remedy)
    declared = {name: each for name, each in given.items() if isinstance(each, Stream)}
    for name, each in declared.items():
        if name != each.name:
            raise SettingsError(
                f"is stream {each.name}", where=f"{_STREAMS}: {name}", remedy="Give it under its own name"
            )
    written = {name: each for name, each in given.items() if not isinstance(each, Stream)}
    return declared | (streams_from_mapping(written, _STREAMS) if written or not declared else {})


def rules_from(rules: Rules, streams: Mapping[str, Stream]) -> list[Rule]:
    """The rules, checked.

    Raises:
        RuleError: one is not valid; it has the problems of all of them.
    """
    if isinstance(rules, Path) or (isinstance(rules, str) and is_file_name(rules)):
        return load_rules(rules, streams)
    if isinstance(rules, str):
        return parse_rules(rules, streams, where=_RULES)
    several: Any = unwrapped([rules]) if isinstance(rules, Mapping) else [rules] if isinstance(rules, Rule) else rules
    if not isinstance(several, Iterable) or isinstance(several, bytes):
        remedy = "Give a file, a YAML text or mappings"
        raise SettingsError(f"are a {type(rules).__name__}", where=_RULES, remedy=remedy)
    written = [rule_to_mapping(each) if isinstance(each, Rule) else each for each in several]
    return rules_of(written, streams, where=_RULES)


def events_from(events: Any, stream: Stream, zone: str | ZoneInfo | None) -> pa.Table:
    """The stream's fields in their declared types; `arrival_time` is not read (S8.5). Warns of epoch seconds.

    events: see `evaluate`.

    Raises:
        EventsError: it is not a table, a column is missing, or has a value that cannot be read as its field.
        SettingsError: there is no such zone.
    """
    times_of = zone if isinstance(zone, ZoneInfo) else zone_named(zone, "zone")
    if isinstance(events, str | Path):
        table = read_events(Path(events), stream, zone=times_of, coded=True)
    elif stream.members and isinstance(events, Mapping) and events.keys() == {of.alias for of in stream.members}:
        table = united([(of, events_from(events[of.alias], of.stream, zone)) for of in stream.members], stream)
    else:
        table = events_of_table(arrow_table(events, stream), stream, zone=times_of)
    if (doubt := doubtful_times(table, stream)) is not None:
        warnings.warn(doubt, stacklevel=3)
    return table


def day_from(day: date | str, name: str) -> date:
    """A day, also as YYYY-MM-DD. name: of the parameter.

    Raises:
        SettingsError: it is not a date.
    """
    if isinstance(day, date):
        return day.date() if isinstance(day, datetime) else day
    try:
        return date.fromisoformat(str(day))
    except ValueError:
        raise SettingsError(
            "is not a valid date", where=f"{name} {str(day)!r:.50}", remedy="Write it like 2026-01-05"
        ) from None
