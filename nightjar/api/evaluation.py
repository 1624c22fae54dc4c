"""Rules on a table of events: are they valid, and at which events do they hold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl

from nightjar.api.inputs import Rules, Streams, events_from, rules_from, streams_from
from nightjar.files.evaluate import evaluate as evaluated
from nightjar.rules.errors import Problem, RuleError, SettingsError
from nightjar.rules.names import did_you_mean
from nightjar.rules.streams import stream_named
from nightjar.rules.truth import Truth


@dataclass(frozen=True, repr=False)
class Evaluation:
    """What rules conclude of some events. A frame is made when it is first asked for."""

    _truth: Truth

    def __repr__(self) -> str:
        found = {verdict.version.rule.id: verdict.violations for verdict in self._truth.verdicts}
        return f"Evaluation(events={self.events}, duplicates={self.duplicates}, violations={found})"

    @property
    def events(self) -> int:
        """How many events there were, with duplicates."""
        return self._truth.events

    @property
    def duplicates(self) -> int:
        """How many had the id of an event that arrived before; they do not count."""
        return self._truth.duplicates

    @property
    def rules(self) -> list[str]:
        """The ids of the rules that were evaluated: those of the stream that are active or shadow."""
        return [verdict.version.rule.id for verdict in self._truth.verdicts]

    @cached_property
    def violations(self) -> pl.DataFrame:
        """A row for each rule and event at which it holds, rule by rule and then in the order of arrival.

        Columns: rule_id, rule_version, event_id, event_time (UTC, µs), violated (always true), and as JSON objects
        group and measures (decimals as text with all their digits).
        """
        return pl.DataFrame(self._truth.table())

    def measures(self, rule_id: str) -> pl.DataFrame:
        """A row for each event at which a rule was evaluated, in the order of arrival.

        Columns: the stream's event id and event time, the fields of the rule's `group_by`, violated (boolean), and one
        for each measure in its type: int64, double, decimal, boolean, timestamp or text.

        Raises:
            SettingsError: no rule of this id was evaluated.
        """
        where = f"rule {rule_id}"
        if rule_id not in self.rules:
            remedy = did_you_mean(str(rule_id), self.rules, "Rules are") if self.rules else "No rule was evaluated"
            raise SettingsError("was not evaluated", where=where, remedy=remedy)
        values = self._truth.values(rule_id)
        if values.column_names.count("violated") > 1:
            raise SettingsError("a measure or field is called violated", where=where, remedy="Give it another name")
        return pl.DataFrame(values)


def check(rules: Rules, *, streams: Streams = None) -> list[Problem]:
    """The errors in rules, as `nightjar rules check` finds them; empty if there are none. Its warnings are left out.

    rules: a file, a YAML or JSON text, or one or several mappings. streams: a TOML file of declarations, or
    declarations by name; None: those of the settings.

    Raises:
        SettingsError, DeclarationError: the settings or the streams cannot be used.
    """
    declared = streams_from(streams)
    try:
        rules_from(rules, declared)
    except RuleError as refused:  # a problem of the text as a whole has the name of that for its place
        return [each if each.place else replace(each, place=refused.where) for each in refused.problems]
    return []


def evaluate(
    rules: Rules, events: Any, *, stream: str, streams: Streams = None, zone: str | ZoneInfo | None = None
) -> Evaluation:
    """What rules conclude of a stream's events once all are there, as `nightjar evaluate` and the night do.

    rules, streams: see `check`. Each rule applies from its `effective` time on, or else from the beginning; rules on
    other streams are left out. events: the path of a file (Parquet, CSV, JSON lines) or of a folder of such files; or a
    table of Arrow, Polars, pandas or Spark (which is collected), with a column for each field of the stream that is not
    optional, in any order of rows; of a union a mapping of its streams' names there to one of these. `arrival_time`
    is not read: of several events with one id the earliest counts. zone: of times that have none, such as
    Europe/Berlin. Warns if event times look like epoch seconds.

    Raises:
        RuleError: a rule is not valid; `problems` lists what is wrong.
        EventsError: a column is missing, or has a value that cannot be read as its field.
        EvaluationError: the exact value of a measure does not fit its type.
        SettingsError: the stream is not declared, no rule is on it, or there is no such zone.
    """
    declared = streams_from(streams)
    chosen, loaded = stream_named(stream, declared), rules_from(rules, declared)
    if all(rule.stream != stream for rule in loaded):
        others = ", ".join(sorted({rule.stream for rule in loaded}))
        raise SettingsError(f"no rule is on stream {stream}", where="rules", remedy=f"They are on {others}")
    return Evaluation(evaluated(chosen, loaded, events_from(events, chosen, zone)))
