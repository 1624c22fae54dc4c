"""The state of a rebuilt checkpoint: whatever was read and emitted before it, the final alerts are the same."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightjar.ingestion.event_schema import PRIMARY, SHUFFLED_BY
from nightjar.rules.engine import Engine
from nightjar.rules.engine.ledger import LEDGER_SCHEMA
from nightjar.rules.model import Revisions
from nightjar.rules.rulebook import WHOLE_STREAM, RuleBook, ShuffleKey
from nightjar.rules.versions import RuleSet
from nightjar.streaming.buckets.bucket import Bucket
from nightjar.streaming.config import JobConfig
from nightjar.streaming.partitioning import divided
from nightjar.streaming.priming.bootstrap_state import share_of, write_share
from nightjar.streaming.state.state_files import BucketFiles
from nightjar.streaming.state.statelog import NOTHING, StateLog
from tests.support import histories
from tests.support.histories import STREAM

STREAMS = {STREAM.name: STREAM}
CONFIG = JobConfig(STREAMS, Path("unused"), buckets=3, shuffle_partitions=2)


def book_of(ruleset: RuleSet) -> RuleBook:
    """The book after these versions."""
    book = RuleBook(STREAMS)
    for version in ruleset.versions:
        key = book.shuffle_key_of(version.rule)
        book.add(version, 0, running=[*book.shuffle_keys, key])
    return book


def cut(at: list[int], table: pa.Table) -> list[pa.Table]:
    """The table in batches."""
    edges = [0, *sorted(c % (table.num_rows + 1) for c in at), table.num_rows]
    return [table.slice(a, b - a) for a, b in itertools.pairwise(edges)]


def final(alerts: list[pa.Table], ruleset: RuleSet) -> dict[str, tuple[str, str, bool]]:
    """What a consumer is left with who keeps the highest revision: measures, text (both empty where a rule announces no
    change of them) and whether it is muted, by alert id."""
    exact = {(v.rule.id, v.version) for v in ruleset.versions if v.rule.revisions is Revisions.VALUES}
    last: dict[str, dict[str, Any]] = {}
    for record in pa.concat_tables(alerts).to_pylist():
        revision = last[record["alert_id"]]["revision"] + 1 if record["alert_id"] in last else 1
        assert record["revision"] == revision, "revisions count up by one"
        last[record["alert_id"]] = record
    return {
        key: (*((r["measures"], r["text"]) if (r["rule_id"], r["rule_version"]) in exact else ("", "")), r["muted"])
        for key, r in last.items()
        if r["kind"] == "alert"
    }


def latest_of_shuffle_key(
    alerts: pa.Table, ruleset: RuleSet, events: pa.Table, key: ShuffleKey, served: Any, since: int
) -> pa.Table:
    """What the lake's alerts say of a shuffle key's rules, as the state takes it."""
    last = {record["alert_id"]: record for record in alerts.to_pylist()}
    rules = {(v.rule.id, v.version): v.rule for v in ruleset.versions}
    routed = (
        {}
        if key.field == WHOLE_STREAM
        else dict(zip(events.column("id").to_pylist(), events.column(key.field).to_pylist(), strict=True))
    )
    rows = [
        {
            **record,
            "retracted": record["kind"] == "retraction",
            "mute": rule.mute or 0,
            SHUFFLED_BY: routed.get(record["event_id"]),
        }
        for record in last.values()
        for rule in (rules[record["rule_id"], record["rule_version"]],)
        if rule.group_by in served
    ]
    schema = LEDGER_SCHEMA
    if key.field != WHOLE_STREAM:
        schema = schema.append(pa.field(SHUFFLED_BY, STREAM.fields[key.field].arrow))
    table = pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema)
    return table.filter(
        pc.greater_equal(pc.add(table.column("event_time").cast(pa.int64()), table.column("mute")), since)
    )


def restored(folder: Path, key: ShuffleKey, book: RuleBook) -> dict[int, Bucket]:
    """The buckets of a shuffle key as a worker makes them from the state, by their place."""
    buckets = {}
    for at, of in enumerate(sorted(folder.iterdir(), key=lambda of: int(of.name))):
        files = BucketFiles(of)
        head = files.before(1)
        assert {file.name for file in of.iterdir()} == head.names | {"head-0"}
        log = StateLog(files, STREAM.event_time)
        buckets[at] = Bucket(STREAM, key, book)
        buckets[at].engine.restore(log.read(entry) for entry in head.missing(NOTHING))
        buckets[at].engine.resume(head.position)
    return buckets


def parts_of(batch: pa.Table, key: ShuffleKey) -> list[tuple[int, pa.Table]]:
    """The batch by bucket, as buckets get it."""
    whole = batch.append_column(PRIMARY, pa.array([True] * batch.num_rows, pa.bool_())).combine_chunks()
    return [
        (at, pa.Table.from_batches([part]))
        for rows in whole.to_batches()
        for at, part in divided(rows, None if key.field == WHOLE_STREAM else rows.column(key.field), CONFIG.buckets)
    ]


@pytest.mark.slow
@settings(max_examples=3 * settings().max_examples)
@given(
    histories.rule_sets(),
    histories.events(lateness=True),
    st.lists(st.integers(0, 100), max_size=4),
    st.lists(st.integers(0, 100), max_size=4),
    st.integers(0, 100),
    st.integers(0, 100),
    st.booleans(),
)
def test_a_stream_resumes_from_any_offset_before_what_it_had_announced(
    rule_set: Any, events: Any, cuts: list[int], others: list[int], stop: int, back: int, clock_known: bool
) -> None:
    """S8 to S10: the job stopped somewhere, and resumes a little before in other batches: no revision is published
    twice, and the highest of each alert is what an uninterrupted stream ends with."""
    ruleset, _ = rule_set
    table = histories.table(events)
    stop %= table.num_rows + 1
    begin = max(0, stop - back % 8)
    old = Engine(STREAM, ruleset)
    emitted = [old.advance(batch).alerts for batch in cut(cuts, table.slice(0, stop))]
    before, after = table.slice(0, begin), table.slice(begin)
    clock = after.column("arrival_time").cast(pa.int64())[0].as_py() if clock_known and after.num_rows else None
    book, alerts = book_of(ruleset), pa.concat_tables(emitted)
    for number, key in enumerate(book.shuffle_keys):
        share = share_of(CONFIG, book, number, clock)
        needed = before.filter(pc.greater_equal(before.column("at").cast(pa.int64()), share.horizon))
        words = latest_of_shuffle_key(alerts, ruleset, table, key, book.served_by(key), share.settled)
        with tempfile.TemporaryDirectory() as scratch:
            half = needed.num_rows // 2
            written = write_share(Path(scratch), share, [needed.slice(0, half), needed.slice(half)], words)
            assert written == len(set(needed.column("id").to_pylist()))
            buckets = restored(Path(scratch), key, book)
        assert len(buckets) == (1 if key.field == WHOLE_STREAM else CONFIG.buckets)
        for batch in cut(others, after):
            for at, part in parts_of(batch, key):
                emitted.append(buckets[at].advance(part, None).alerts)
    assert final(emitted, ruleset) == final([Engine(STREAM, ruleset).advance(table).alerts], ruleset)


def test_large_shares_are_cut_into_entries(tmp_path: Path, monkeypatch: Any) -> None:
    """An entry is read whole into a worker's memory."""
    monkeypatch.setattr("nightjar.streaming.priming.bootstrap_state.ROWS_AN_ENTRY", 30)
    made = [
        {**dict.fromkeys(STREAM.fields), "id": f"e{i}", "who": f"w{i % 7}", "at": i, "arrival": i} for i in range(200)
    ]
    book = book_of(RuleSet())
    share = share_of(CONFIG, book, 0, None)
    nothing = LEDGER_SCHEMA.append(pa.field(SHUFFLED_BY, pa.string())).empty_table()
    assert write_share(tmp_path, share, [histories.table(made)], nothing) == 200
    buckets = restored(tmp_path, share.shuffle_key, book).values()
    assert sum(bucket.engine.rows for bucket in buckets) == 200
    assert sum(len(BucketFiles(of).before(1).entries) for of in tmp_path.iterdir()) >= 200 / 30
