"""Snoozes: which alerts they cover, by the commands, and checked where they are read."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from nightjar.backfill.erasure.person import Person
from nightjar.backfill.erasure.rows import erase
from nightjar.backfill.erasure.traces import EVENTS, Traces
from nightjar.backfill.inputs.forgotten import Forgotten
from nightjar.backfill.publish.snoozed import Snoozed, read_snoozed, snoozed
from nightjar.cli.app import app
from nightjar.contracts.snoozes import MAX_DAYS, SNOOZE, Snooze, Snoozes, end_record, message, snooze_record
from nightjar.kafka.clients import producer
from nightjar.kafka.topics import topics
from nightjar.lake.json_topics import JsonReader
from nightjar.lake.scanning import scan
from nightjar.lake.snoozes import archived_snoozes
from nightjar.lake.tables import ALERTS, SNOOZES
from nightjar.operations.snoozing import SnoozeLog, read_snoozes, shown_group
from nightjar.rules.errors import SettingsError
from nightjar.rules.masking import MASK
from nightjar.rules.rulebook import RuleBook
from nightjar.rules.streams import load_streams
from nightjar.rules.timestamps import from_microseconds, iso_text, microseconds
from nightjar.rules.unions import union_of
from tests.support.command import environment
from tests.support.explained_lake import DAY, GROUP, named, small_lake
from tests.support.payments import NOON, days, fill
from tests.support.topics import TestTopics

AT, DAYS = microseconds(NOON), 86_400_000_000
RECORD = snooze_record(
    rule_id="limit", group=GROUP, since=AT, until=AT + DAYS, author="kim", reason="travels", now=AT, snooze_id="a" * 32
)


def read(*records: dict[str, Any]) -> Snoozes:
    """What these records say, in their order, as it is read from the topic."""
    rows = [SNOOZE.row(message(record)[1]) for record in records]
    return Snoozes(row for row in rows if row is not None)


def until(known: Snoozes, at: int, **changed: Any) -> int | None:
    """Until when an alert of Ann at that time is snoozed."""
    return known.until({"rule_id": "limit", "group": {"customer_id": "ann"}, "event_time": iso_text(at)} | changed)


def test_a_snooze_covers_event_times_from_its_beginning_to_before_its_end() -> None:
    """Of its rule and its group alone, however the alert is written."""
    known = read(RECORD)
    assert [until(known, at) for at in (AT - 1, AT, AT + DAYS - 1, AT + DAYS)] == [None, AT + DAYS, AT + DAYS, None]
    assert until(known, AT, rule_id="other") is until(known, AT, group=json.loads('{"customer_id":"bob"}')) is None
    for written in (AT, NOON, iso_text(AT)):
        assert until(known, AT, event_time=written, group=GROUP) == AT + DAYS
    assert until(known, AT, event_time="soon") is None


@given(
    spans=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9), st.none() | st.integers(0, 12)), max_size=6),
    at=st.integers(0, 20),
)
def test_what_is_covered_is_the_union_of_what_was_not_ended_before(
    spans: list[tuple[int, int, int | None]], at: int
) -> None:
    """In hours from NOON: begin, length, and when it was ended, if it was."""
    hour, records, covered = DAYS // 24, [], []
    for number, (begin, length, ended) in enumerate(spans):
        end = begin + length
        given = RECORD | {"snooze_id": f"{number:032x}", "since": iso_text(AT + begin * hour)}
        records.append(given | {"until": iso_text(AT + end * hour)})
        if ended is not None:
            (snooze,) = read(records[-1]).every
            records.append(end_record(snooze, author="kim", reason="back", now=AT + ended * hour))
            end = max(begin, min(end, ended))
        covered.append((begin, end))
    expected = max((end for begin, end in covered if begin <= at < end), default=None)
    assert until(read(*records), AT + at * hour) == (None if expected is None else AT + expected * hour)


@pytest.mark.parametrize(
    "change",
    [
        {"snooze_id": "x"},
        {"kind": "gone"},
        {"rule_id": None},
        {"group": "ann"},
        {"group": None},
        {"until": iso_text(AT - 1)},
        {"until": iso_text(AT + MAX_DAYS * DAYS + 1)},
        {"since": "soon"},
        {"set_at": None},
        {"author": " "},
        {"reason": "two\nlines"},
        {"reason": "x" * 501},
        {"reason": "\ud800"},
    ],
)
def test_what_is_no_snooze_is_not_read(change: dict[str, Any]) -> None:
    """Anybody may write to a topic."""
    assert SNOOZE.row(json.dumps(RECORD).encode()) is not None
    assert SNOOZE.row(json.dumps(RECORD | change).encode()) is None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"until": AT}, "is over by then"),
        ({"until": AT + (MAX_DAYS + 1) * DAYS}, "is too far away"),
        ({"since": AT + DAYS, "until": AT + DAYS}, "is over by then"),
        ({"author": ""}, "Say who says so"),
        ({"reason": " "}, "Say why"),
        ({"reason": "a\tb"}, "is not a line of text"),
    ],
)
def test_what_would_not_be_read_is_not_sent(change: dict[str, Any], why: str) -> None:
    """With the remedy."""
    given = {"rule_id": "limit", "group": GROUP, "since": AT, "until": AT + DAYS, "author": "kim", "reason": "x"}
    with pytest.raises(SettingsError, match=why):
        snooze_record(**{**given, "now": AT, **change})


def test_the_lake_has_every_record_and_reads_them_as_the_topic_does(tmp_path: Path) -> None:
    """The last to arrive counts; what was no snooze is no snooze there."""
    assert archived_snoozes(tmp_path).every == []
    (snooze,) = read(RECORD).every
    ended = end_record(snooze, author="pat", reason="back", now=AT + 5)
    rows = [JsonReader(SNOOZES).row(message(record)[1]) for record in (RECORD, ended)]
    timed = [row | {name: from_microseconds(row[name]) for name in ("since", "until", "set_at")} for row in rows]
    place = {"partition": 0, "arrival_time": NOON, "arrival_date": DAY}
    fill(tmp_path, SNOOZES, timed[1] | place | {"offset": 1}, timed[0] | place | {"offset": 0}, {"original": b"x"})
    assert (
        archived_snoozes(tmp_path).every
        == read(RECORD, ended).every
        == [replace(snooze, kind="ended", until=AT + 5, author="pat", reason="back", set_at=AT + 5)]
    )


def test_a_night_counts_the_alerts_that_a_snooze_covers(tmp_path: Path) -> None:
    """Of its rule, its group and its time, as they stand; by what was known by then; also one without alerts."""
    assert snoozed(tmp_path, DAY, NOON) == []
    (snooze,) = read(RECORD).every
    other = snooze_record(rule_id="cap", group=GROUP, since=AT, until=AT + DAYS, author="kim", reason="x", now=AT)
    later = snooze_record(rule_id="cap", group=GROUP, since=AT, until=AT + DAYS, author="kim", reason="x", now=AT + 1)
    for offset, record in enumerate((RECORD, other, later)):
        row = JsonReader(SNOOZES).row(message(record)[1])
        row |= {name: from_microseconds(row[name]) for name in ("since", "until", "set_at")}
        fill(tmp_path, SNOOZES, row | {"partition": 0, "offset": offset, "arrival_time": NOON, "arrival_date": DAY})
    alert = {"revision": 1, "kind": "alert", "source": "stream", "rule_id": "limit", "group": GROUP}
    alert |= {"event_time": from_microseconds(AT), "arrival_date": DAY}
    before, after = (from_microseconds(each) for each in (snooze.since - 1, snooze.until))
    for number, changed in enumerate(
        (
            {},
            {"rule_version": 2},
            {"kind": "retraction"},
            {"rule_id": "cap2"},
            {"group": '{"customer_id":"bob"}'},
            {"event_time": before},
            {"event_time": after},
        )
    ):
        fill(tmp_path, ALERTS, alert | {"alert_id": f"{number:032x}"} | changed)
    expected = [Snoozed(snooze.snooze_id, "limit", 2), Snoozed(other["snooze_id"], "cap", 0)]
    assert snoozed(tmp_path, DAY, from_microseconds(AT)) == expected
    assert read_snoozed(expected[0].as_dict(), archived_snoozes(tmp_path)) == (expected[0], snooze)
    assert read_snoozed(expected[0].as_dict(), read()) == (expected[0], None)
    assert snoozed(tmp_path, DAY - timedelta(days=400), from_microseconds(AT)) == []


def test_snoozes_go_with_their_person(tmp_path: Path) -> None:
    """And a reason that names the person loses the name."""
    place = {"partition": 0, "arrival_time": NOON, "arrival_date": DAY, "rule_id": "limit"}
    fill(
        tmp_path,
        SNOOZES,
        place | {"offset": 0, "group": GROUP, "reason": "travels"},
        place | {"offset": 1, "group": '{"customer_id":"bob"}', "reason": "with ann"},
    )
    streams = [load_streams()["transactions"]]
    traces = Traces(Person({"customer_id": ("ann",)}), streams, pl.DataFrame(schema=EVENTS), Forgotten.none())
    (erasure,) = (each for each in traces.erasures() if each.table is SNOOZES)
    done = erase(tmp_path, erasure, dry_run=False)
    assert (done.rows, done.masked) == (1, 1)
    rows = scan(tmp_path, SNOOZES).sort("offset").collect()
    assert rows["group"].to_list() == [None, '{"customer_id":"bob"}']
    assert "ann" not in rows["reason"][1]


def test_snoozes_of_a_union_go_by_its_names_for_their_fields(tmp_path: Path) -> None:
    """A person is named by a field of a stream, which has another name in the union."""
    place = {"partition": 0, "arrival_time": NOON, "arrival_date": DAY, "rule_id": "limit"}
    fill(tmp_path, SNOOZES, place | {"offset": 0, "group": '{"who":"ann"}', "reason": "travels"})
    union = {"union": ["logins", "payments"], "entities": ["who"], "fields": {"who": {"logins": "customer_id"}}}
    streams = load_streams()
    searched = [streams["logins"], union_of("activity", union, streams, "test")]
    traces = Traces(Person({"customer_id": ("ann",)}), searched, pl.DataFrame(schema=EVENTS), Forgotten.none())
    (erasure,) = (each for each in traces.erasures() if each.table is SNOOZES)
    assert erase(tmp_path, erasure, dry_run=False).rows == 1


def test_groups_are_shown_without_sensitive_values() -> None:
    """Of a rule that nobody knows nothing is, where any stream has a sensitive field."""
    (snooze,) = read(RECORD).every
    streams = load_streams()
    hidden = {**streams, "transactions": replace(streams["transactions"], sensitive=frozenset({"amount"}))}
    assert shown_group(snooze, RuleBook(streams), streams) == GROUP
    assert shown_group(snooze, RuleBook(hidden), hidden) == MASK


@pytest.mark.kafka
def test_the_commands_snooze_and_end_it(tmp_path: Path, kafka_topics: TestTopics) -> None:
    """The group of an alert; the topic keeps the last record of each snooze, and what is no snooze is left out."""
    own = kafka_topics.ensure()
    (topic,) = (each for each in topics(own.settings, []) if each.name == own.settings.snoozes_topic)
    assert topic.config["cleanup.policy"] == "compact,delete"
    small_lake(tmp_path).alert()
    given = environment(own.settings) | {"NIGHTJAR_LAKE_DIR": str(tmp_path), "COLUMNS": "400"}
    run = CliRunner()

    def told(*arguments: str, code: int = 0) -> str:
        done = run.invoke(app, ["alerts", *arguments], env=given)
        assert done.exit_code == code or done.exception is not None, done.output
        return done.output + str(done.exception or "")

    assert "Nothing is snoozed" in told("snoozes")
    assert "needs an end" in told("snooze", named(), "--reason", "travels")
    assert "is not a time" in told("snooze", named(), "--reason", "travels", "--until", "soon")
    assert "its group is not snoozed" in told("unsnooze", named(), "--reason", "back")
    set_by_kim = ("snooze", named(), "--reason", "travels", "--author", "kim", "--for", "7d")
    assert "rule limit is snoozed" in told(*set_by_kim, "--since", "2026-01-01")
    with producer(own.settings) as client:
        client.send(own.settings.snoozes_topic, b"{}", key=b"x").get(30)
    log = SnoozeLog(own.settings)
    (snooze,) = read_snoozes(own.settings, log).every
    assert (snooze.rule_id, snooze.group, snooze.since) == ("limit", GROUP, microseconds(NOON - days(4)) - DAYS // 2)
    assert "travels" in told("snoozes")
    assert json.loads(told("snoozes", "--json").splitlines()[-1]) == [SNOOZE.record(snooze.__dict__)]
    assert "ended 1 snooze of rule limit" in told("unsnooze", named(), "--reason", "back", "--author", "pat")
    assert "Nothing is snoozed" in told("snoozes")
    assert "back" in told("snoozes", "--all", "--rule", "limit")
    (ended,) = read_snoozes(own.settings, log).every
    assert (ended.kind, ended.author, ended.until < snooze.until) == ("ended", "pat", True)
    assert isinstance(ended, Snooze)
