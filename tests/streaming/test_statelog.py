"""A bucket's log of deltas: what is written is read, however it was merged."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightjar.rules.engine import Delta, Engine, Position
from nightjar.rules.engine.ledger import LEDGER_SCHEMA
from nightjar.rules.types import STRING
from nightjar.rules.versions import RuleSet
from nightjar.streaming.state import statelog
from nightjar.streaming.state.statelog import FAN_OUT, Head, StateLog
from tests.support import histories

_NEVER = -(1 << 60)
_BEGIN = Position(_NEVER, _NEVER, _NEVER)


class Memory(dict[str, bytes]):
    """Entries kept in a dictionary."""

    def get(self, name: str) -> bytes:  # type: ignore[override]
        """What was put."""
        return self[name]

    def put(self, name: str, value: bytes) -> None:
        """Keep it."""
        self[name] = value


def delta(*names: str, at: int = 0) -> Delta:
    """Events of these ids at a time in seconds, taken in by an engine without rules."""
    made = [
        {**dict.fromkeys(histories.STREAM.fields), "id": n, "at": at * histories.SECOND, "arrival": 0} for n in names
    ]
    return Engine(histories.STREAM, RuleSet(), batch=True).advance(histories.table(made)).delta


def announcement(event_id: str, revision: int) -> Delta:
    """One alert's announcement, without events."""
    entry = dict.fromkeys(LEDGER_SCHEMA.names, "") | {
        "event_id": event_id,
        "event_time": 0,
        "rule_version": 1,
        "revision": revision,
        "retracted": False,
        "muted": False,
        "mute": 0,
    }
    return Delta(delta().events, pa.Table.from_pylist([entry], LEDGER_SCHEMA))


def held(log: StateLog, head: Head) -> list[str]:
    """The ids in the log, oldest first."""
    return [i for entry in head.entries for i in log.read(entry).events.column("id").to_pylist()]


@pytest.mark.parametrize("in_head", [0, 1900, statelog.LARGEST_IN_HEAD])
def test_entries_merge_in_levels_and_none_is_lost(in_head: int, monkeypatch: Any) -> None:
    """After any number of appends the log holds every event once, in order, in few entries, small ones in the head."""
    monkeypatch.setattr(statelog, "LARGEST_IN_HEAD", in_head)
    entries = Memory()
    log, head = StateLog(entries, "at"), Head()
    for n in range(3 * FAN_OUT * FAN_OUT + 5):
        head = log.append(head, delta(f"e{n}"), _BEGIN)
        for name in head.stale:
            del entries[name]
    assert held(log, head) == [f"e{n}" for n in range(3 * FAN_OUT * FAN_OUT + 5)]
    assert len(head.entries) <= 3 + FAN_OUT + FAN_OUT
    assert {entry.name for entry in head.entries if entry.size > in_head} == set(entries) == head.names
    assert Head.from_bytes(head.to_bytes()) == head


def test_parts_of_a_batch_may_be_written_before_its_end() -> None:
    """They count once the head has them; what no rule needs by then does not get there, and its file goes."""
    entries = Memory()
    log, first = StateLog(entries, "at"), Head(version=3)
    large = [f"e{n}" for n in range(5000)]
    written = [log.write_ahead(4, delta("old", at=1)), log.write_ahead(4, delta(*large, at=9))]
    position = replace(_BEGIN, horizon=5 * histories.SECOND)
    head = log.append(first, delta("last", at=9), position, version=4, written=written)
    assert held(log, head) == [*large, "last"]
    assert head.steps_version == first.steps_version
    assert {entry.last for entry in head.entries} == {4}
    (at_once,) = (entry for entry in written if entry.value)
    assert set(entries) == head.names | set(head.stale) == {written[1].name}
    assert at_once.name not in head.names
    folded = replace(written[0], stepped=7)
    assert log.append(first, delta("last"), _BEGIN, version=4, written=[folded]).steps_version == 4


def test_buckets_merge_in_turns_and_none_waits_for_ever() -> None:
    """Entries of all buckets come in the same batches; one that misses its turn merges once it has twice as many."""
    merged: dict[int, list[int]] = {}
    for number in range(FAN_OUT):
        log, head = StateLog(Memory(), "at", number), Head()
        for version in range(2 * FAN_OUT * FAN_OUT):
            before, head = head, log.append(head, delta(f"e{version}"), _BEGIN)
            if len(head.entries) <= len(before.entries):
                merged.setdefault(version, []).append(number)
    assert {len(numbers) for numbers in merged.values()} == {1}
    log, head = StateLog(Memory(), "at", 1), Head()
    for batch in range(5 * FAN_OUT):
        head = log.append(head, delta(f"e{batch}"), _BEGIN, version=batch * FAN_OUT)
        assert len([entry for entry in head.entries if entry.level == 0]) < 2 * FAN_OUT


def test_a_head_of_an_earlier_release_can_be_read() -> None:
    """It has no count of alerts by hour."""
    written = msgspec.msgpack.decode(Head(version=3).to_bytes())
    del written["capped"]
    assert Head.from_bytes(msgspec.msgpack.encode(written)) == Head(version=3)


def test_events_before_the_horizon_go_when_entries_merge_or_wholly_pass() -> None:
    """What no rule can need does not stay: a wholly passed entry goes unread, others lose it when they merge."""
    entries = Memory()
    log, head = StateLog(entries, "at"), Head()
    head = log.append(head, delta("old", at=1), _BEGIN)
    head = log.append(head, delta("new", at=9), replace(_BEGIN, horizon=5 * histories.SECOND))
    assert held(log, head) == ["new"]
    head = Head()
    for n in range(FAN_OUT):
        mixed = Delta(
            pa.concat_tables([delta(f"a{n}", at=1).events, delta(f"b{n}", at=9).events]), delta().announcements
        )
        head = log.append(head, mixed, replace(_BEGIN, horizon=5 * histories.SECOND))
    assert held(log, head) == [f"b{n}" for n in range(FAN_OUT)]


def test_a_merge_keeps_the_last_announcement_of_each_alert() -> None:
    """Revisions of one alert become one entry: the last."""
    merged = statelog.concat([announcement("x", 1), announcement("y", 1), announcement("x", 2)], "at", _BEGIN)
    assert sorted(
        zip(*(merged.announcements.column(c).to_pylist() for c in ("event_id", "revision")), strict=True)
    ) == [
        ("x", 2),
        ("y", 1),
    ]


def test_an_older_announcement_never_takes_the_place_of_a_newer_one(monkeypatch: Any) -> None:
    """A large entry stays where it is while older and newer ones around it merge: the order of entries says nothing."""
    monkeypatch.setattr(statelog, "FAN_OUT", 2)
    log, head = StateLog(Memory(), "at"), Head()
    before, after = delta("x"), announcement("e1", 2)
    large = Delta(delta(*(f"e{n}" for n in range(200))).events, announcement("e1", 1).announcements)
    monkeypatch.setattr(statelog, "LARGEST_MERGED", 2 * len(statelog.write(before)))
    for each in (before, large, after):
        head = log.append(head, each, _BEGIN)
    engine = Engine(histories.STREAM, RuleSet())
    engine.restore(log.read(entry) for entry in head.entries)
    assert engine.snapshot().announcements.column("revision").to_pylist() == [2]


def test_entries_from_before_a_field_was_declared_have_null_for_it() -> None:
    """However they were merged with later ones; an engine takes them back beside its own."""
    note = {"note": STRING, **histories.STREAM.fields}
    stream = replace(histories.STREAM, fields=MappingProxyType(note), optional=frozenset({"note"}))
    log, head = StateLog(Memory(), "at"), Head()
    for n in range(FAN_OUT // 2):
        head = log.append(head, delta(f"old{n}"), _BEGIN)
    for n in range(FAN_OUT):
        event = histories.table([{**dict.fromkeys(histories.STREAM.fields), "id": f"new{n}", "at": 0, "arrival": 0}])
        engine = Engine(stream, RuleSet(), batch=True)
        head = log.append(head, engine.advance(event.append_column("note", [["x"]])).delta, _BEGIN)
    assert {entry.level for entry in head.entries} == {0, 1}
    restored = Engine(stream, RuleSet())
    restored.restore(log.read(entry) for entry in head.entries)
    events = restored.snapshot().events
    assert events.column_names[: len(note)] == list(note)
    found = dict(zip(*(events.column(name).to_pylist() for name in ("id", "note")), strict=True))
    assert found == {f"old{n}": None for n in range(FAN_OUT // 2)} | {f"new{n}": "x" for n in range(FAN_OUT)}


def test_a_merged_entry_is_one_record_batch() -> None:
    """However many it was merged from: what is compressed in small pieces takes long to write and to read."""
    log, head = StateLog(Memory(), "at"), Head()
    for n in range(FAN_OUT * FAN_OUT):
        head = log.append(head, delta(f"e{n}"), _BEGIN)
    (entry,) = head.entries
    assert len(log.read(entry).events.to_batches()) == 1


def test_texts_that_repeat_are_encoded_and_merge_with_others() -> None:
    """Whether an entry has them as a dictionary or as they are, an engine takes back the same events."""
    groups = ["a", "b", None, ""]
    made = [
        {**dict.fromkeys(histories.STREAM.fields), "id": f"e{n}", "who": groups[n % 4], "at": n, "arrival": n}
        for n in range(statelog.ENCODED_FROM + 1)
    ]
    engine = Engine(histories.STREAM, RuleSet(), batch=True)
    many = engine.advance(histories.table(made)).delta
    written = statelog.read(statelog.write(many))
    types = {name: written.events.field(name).type for name in ("id", "who")}
    assert types == {"id": pa.string(), "who": pa.dictionary(pa.int32(), pa.string())}
    for each in (written, statelog.concat([written, delta("x")], "at", _BEGIN)):
        restored = Engine(histories.STREAM, RuleSet())
        restored.restore([each])
        assert restored.snapshot().events.slice(0, len(made)).equals(engine.snapshot().events)


def test_an_engine_reads_only_what_it_has_not_seen() -> None:
    """The head tells an engine at some version which entries to read, and one of a failed attempt that it is none."""
    log, head = StateLog(Memory(), "at"), Head()
    for n in range(3):
        head = log.append(head, delta(f"e{n}"), _BEGIN)
    seen_one = log.append(Head(), delta("e0"), _BEGIN)
    assert not head.holds(0, seen_one.tokens[0])
    assert head.holds(1, head.tokens[1])
    assert [log.read(e).events.column("id").to_pylist() for e in head.missing(1)] == [["e2"]]


def test_large_entries_are_merged_no_more(monkeypatch: Any) -> None:
    """Nothing is rewritten whole: past a size an entry stays as it is."""
    monkeypatch.setattr(statelog, "LARGEST_MERGED", 0)
    log, head = StateLog(Memory(), "at"), Head()
    for n in range(3 * FAN_OUT):
        head = log.append(head, delta(f"e{n}"), _BEGIN)
    assert len(head.entries) == 3 * FAN_OUT


@settings(max_examples=40, deadline=None)
@given(
    histories.rule_sets(),
    histories.events(lateness=True, most=40),
    st.lists(st.integers(0, 40), max_size=30),
    st.sampled_from((2, FAN_OUT)),
    st.sampled_from((0, statelog.LARGEST_MERGED)) | st.integers(4200, 6000),
    st.sampled_from((0, statelog.LARGEST_IN_HEAD)),
    st.sampled_from((2, statelog.ENCODED_FROM)),
)
def test_an_engine_restored_from_the_log_goes_on_like_one_that_was_never_lost(
    rule_set: Any, events: Any, cuts: list[int], fan_out: int, largest: int, in_head: int, encoded_from: int
) -> None:
    """S9 and S11 through the durable form: merged or too large to be, filtered by the horizon, written and read."""
    ruleset, _ = rule_set
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statelog, "FAN_OUT", fan_out)
        patch.setattr(statelog, "LARGEST_MERGED", largest)
        patch.setattr(statelog, "LARGEST_IN_HEAD", in_head)
        patch.setattr(statelog, "ENCODED_FROM", encoded_from)
        restored_like_whole(ruleset, events, cuts)


def restored_like_whole(ruleset: RuleSet, events: Any, cuts: list[int]) -> None:
    """Compare an engine restored from the log at each cut with one that is not restarted."""
    table = histories.table(events)
    edges = [0, *sorted(c % (table.num_rows + 1) for c in cuts), table.num_rows]
    whole = Engine(histories.STREAM, ruleset)
    log, head = StateLog(Memory(), "at"), Head()
    for a, b in itertools.pairwise(edges):
        batch = table.slice(a, b - a)
        clock = pc.max(batch.column("arrival_time")).cast(pa.int64()).as_py()
        lost = Engine(histories.STREAM, ruleset)
        lost.restore(log.read(entry) for entry in head.entries)
        lost.resume(head.position)
        expected, got = whole.advance(batch, clock), lost.advance(batch, clock)
        assert got.alerts.equals(expected.alerts)
        head = log.append(head, got.delta, whole.position)
        head = Head.from_bytes(head.to_bytes())
