"""The catalogue of rules; tests/test_cases.py plays the case of each on every host."""

import json
import tomllib
from itertools import chain
from typing import Any

import pytest

from nightjar.cases.simulate import simulate
from nightjar.catalogue import AREAS, TAGS, Entry, catalogue, entry_named
from nightjar.catalogue.entries import STREAMS
from nightjar.rules.doubts import doubts
from nightjar.rules.events import parse_event
from tests.support.command import run
from tools.catalogue import PAGES, pages

ENTRIES = catalogue()
of_each_entry = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)


def test_ids_and_titles_are_those_of_one_entry() -> None:
    """And a file is named as its rule."""
    assert len({entry.id for entry in ENTRIES}) == len({entry.title for entry in ENTRIES}) == len(ENTRIES)
    files = {file.stem for file in (STREAMS.parent / "rules").iterdir()}
    assert {entry.id for entry in ENTRIES} == files


@of_each_entry
def test_an_entry_has_its_area_first_among_known_tags(entry: Entry) -> None:
    """No tag comes twice, and each says something besides the area."""
    assert entry.tags[0] in AREAS
    assert set(entry.tags[1:]) <= set(TAGS) - set(AREAS)
    assert 1 < len(set(entry.tags)) == len(entry.tags)


@of_each_entry
def test_no_condition_of_the_rule_is_doubtful(entry: Entry) -> None:
    """As `nightjar rules check` sees it."""
    assert doubts(entry.rule, entry.stream) == []


@of_each_entry
def test_the_texts_say_something(entry: Entry) -> None:
    """Each is a paragraph, and the alert's text has the values that matter."""
    texts = (entry.finds, entry.thresholds, entry.false_positives, entry.tuning)
    assert all(len(text) > 100 and text.endswith(".") for text in texts[:2])
    assert all(len(text) > 60 and text.endswith(".") for text in texts[2:])
    assert "{" in entry.rule.description


@of_each_entry
def test_the_case_has_a_history_that_alerts_and_one_that_does_not(entry: Entry) -> None:
    """A group of events that the rule sees has alerts, and another such group has none."""
    outcome = simulate(entry.case)
    assert (outcome.late, outcome.quarantine, outcome.simultaneous) == ([], [], [])
    alerted = {group(entry, alert["group"]) for alert in outcome.final}
    events = [parse_event(event.raw, entry.stream) for step in entry.case.steps for event in step.events]
    groups = {group(entry, event) for event in events if isinstance(event, dict)}
    assert alerted
    assert alerted < groups


def group(entry: Entry, values: Any) -> tuple[str, ...]:
    """The group of an event, or of an alert."""
    return tuple(str(values[name]) for name in entry.rule.group_by)


def test_every_tag_is_of_an_entry() -> None:
    """The list of tags has no others."""
    assert set(chain.from_iterable(entry.tags for entry in ENTRIES)) == set(TAGS)


def test_the_fields_of_the_catalogues_streams_are_those_that_rules_read() -> None:
    """Beside id and time; all have a meaning, and whoever groups by a field finds it among the entities."""
    for name in tomllib.loads(STREAMS.read_text())["streams"]:
        entries = [entry for entry in ENTRIES if entry.stream.name == name]
        stream = entries[0].stream
        read = set(chain.from_iterable(entry.fields for entry in entries))
        assert read | {stream.event_id, stream.event_time} == set(stream.fields)
        assert all(set(entry.rule.group_by) & set(stream.entities) for entry in entries)
    for entry in ENTRIES:
        assert set(entry.meanings) == set(entry.stream.fields)


@pytest.mark.slow
def test_pages_are_what_the_catalogue_makes_them() -> None:
    """`make docs` writes them."""
    written = {path.name: path.read_text() for path in PAGES.iterdir()}
    assert written == pages(), "the catalogue has changed: run `make docs`"


def test_what_the_job_keeps_for_a_rule_is_said() -> None:
    """Events of its widest window without a resolution, rows of those with one, or both."""
    kept = {name: entry_named(name).retention for name in ("card-testing", "round-trip", "mule-in-and-out")}
    rows = "a row per group and step for windows with a resolution"
    assert kept["card-testing"] == "The job keeps the stream's events of 1h."
    assert kept["round-trip"] == f"The job keeps {rows}."
    assert kept["mule-in-and-out"] == f"The job keeps the stream's events of 2d, and {rows}."


def test_list_shows_the_rules_with_a_tag() -> None:
    """As a table, and as JSON."""
    mules = [entry.id for entry in ENTRIES if "mule" in entry.tags]
    listed = json.loads(run("rules", "catalogue", "list", "--tag", "mule", "--json").stdout)
    assert [row["id"] for row in listed] == mules
    table = run("rules", "catalogue", "list", "--tag", "mule").stdout
    assert "mule-in-and-out" in table
    assert "card-testing" not in table


def test_show_has_what_a_person_decides_by() -> None:
    """The texts, the fields with their meaning, and the rule."""
    shown = run("rules", "catalogue", "show", "card-testing").stdout
    for part in (
        "One device tries many cards",
        "Why these thresholds",
        "card_id (string): The card",
        "when: cards >= 5",
    ):
        assert part in shown
    as_json = json.loads(run("rules", "catalogue", "show", "card-testing", "--json").stdout)
    assert as_json["rule"]["group_by"] == ["device_id"]
    assert {"field": "device_id", "type": "string"}.items() <= as_json["fields"][-1].items()


def test_an_unknown_rule_and_an_unknown_tag_have_a_remedy() -> None:
    """The nearest one is named."""
    assert "Did you mean card-testing?" in run("rules", "catalogue", "show", "card-tests", code=2).stderr
    assert "Did you mean takeover?" in run("rules", "catalogue", "list", "--tag", "takeovers", code=2).stderr
