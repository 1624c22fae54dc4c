"""From the lake to outcomes and corrections: the stages' own tasks, one after another in this process."""

import json
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pyarrow as pa
import pytest

from nightjar.backfill.config import RunRequest
from nightjar.backfill.evaluate.evaluation import evaluate
from nightjar.backfill.evaluate.survey import judged_spans
from nightjar.backfill.inputs import context
from nightjar.backfill.inputs.context import RunContext
from nightjar.backfill.reconcile.comparison import Compared, compare
from nightjar.backfill.staging import CORRECTED, EVALUATED, HELD_BACK, OUTCOMES, take_notes
from nightjar.lake.arrow_shuffle import Work
from nightjar.lake.tables import ALERTS, LATE_EVENTS, PROGRESS, RECONCILIATION, RUNS
from tests.support.payments import DAY, HOUR, NOON, add, config_of, days, fill, payment, publish

RULE = json.dumps(
    {
        "id": "burst",
        "stream": "transactions",
        "group_by": ["customer_id"],
        "when": "n >= 2",
        "measures": {"n": {"count": "*", "over": "1h"}},
    }
)
# Enough buckets that the groups of a test lie in several.
SESSION = cast("Any", SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=3)))


def exchanged(_: Any, work: Work, __: pa.Schema, ___: Path, ____: int) -> pa.Table:
    """As Spark's tasks do it."""
    sent: dict[int, list[pa.Table]] = {}
    for task in range(work.tasks):
        for bucket, table in work.send(task):
            sent.setdefault(bucket, []).append(table)
    return pa.concat_tables(work.receive(bucket, pa.concat_tables(tables)) for bucket, tables in sent.items())


class Night:
    """A run of the day of noon over a lake of payments."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = config_of(root)
        self.request = RunRequest("x", NOON.date())
        self.folder = self.request.staged(self.config.lake)
        for table in (ALERTS, LATE_EVENTS, RUNS):
            fill(root, table)
        publish(root, json.loads(RULE), at=NOON - days(9))
        self.read(1 << 40)

    def read(self, offset: int) -> None:
        """The stream reports how far it has come."""
        consumed = {"consumed": json.dumps({"transactions": {"0": offset}}), "arrival_time": NOON, "offset": -offset}
        fill(self.root, PROGRESS, {**consumed, "arrival_date": NOON.date()})

    def run(self, pending: pl.DataFrame | None = None) -> Compared:
        """Evaluate and reconcile."""
        run = RunContext(self.config, self.request, take_notes(self.config, self.request.end + DAY, 0), SESSION)
        evaluate(run, pending)
        return compare(run)

    def staged(self, name: str) -> list[dict[str, Any]]:
        """The rows of one kind, in the order of events."""
        return pl.read_parquet(self.folder / name / "*.parquet").sort("event_time", "alert_id").to_dicts()


@pytest.fixture
def night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Night:
    """Two payments each of seven customers."""
    monkeypatch.setattr(context, "exchange", exchanged)
    people = ["ann", "bob", "cem", "dan", "eve", "flo", "gil"]
    for at, who in enumerate(people):
        add(
            tmp_path,
            payment(f"{who}1", NOON + timedelta(minutes=at), customer_id=who, offset=2 * at),
            payment(f"{who}2", NOON + timedelta(minutes=at + 10), customer_id=who, offset=2 * at + 1),
        )
    return Night(tmp_path)


def alert(night: Night, who: str, **changed: Any) -> dict[str, Any]:
    """The stream's alert on a customer's second payment, with changes."""
    (true,) = [row for row in night.staged(EVALUATED) if row["event_id"] == f"{who}2"]
    del true["failed"]
    return {**true, "revision": 1, "kind": "alert", "source": "stream", "arrival_date": NOON.date(), **changed}


def test_the_streams_alerts_are_compared_with_the_truth(night: Night) -> None:
    """Matched, missed, retracted: each alert in the bucket of its group, whoever emitted it, and none twice."""
    night.run()
    wrong = alert(night, "bob", event_id="bob1", alert_id="wrong", event_time=NOON + timedelta(minutes=1))
    reported = [alert(night, who) for who in ("ann", "bob", "cem")]
    fill(night.root, ALERTS, *reported, wrong)
    compared = night.run()
    assert dict(compared.outcomes) == {"matched": 3, "missed": 4, "retracted": 1}
    assert (compared.stream_alerts, compared.unusable) == (4, 0)
    assert [row["event_id"] for row in night.staged(OUTCOMES) if row["outcome"] == "retracted"] == ["bob1"]


@pytest.mark.parametrize("place", [{"record_partition": 0, "record_offset": 50}, {}], ids=["placed", "of-old"])
def test_an_unexplained_difference_is_held_back_and_no_other(night: Night, place: dict[str, int]) -> None:
    """Dan's second payment is in the lake and was not read: the next run looks. Nothing explains that Ann has none."""
    night.run()
    fill(night.root, ALERTS, *(alert(night, who) for who in ("bob", "cem", "eve", "flo", "gil")))
    add(night.root, payment("dan3", NOON + timedelta(minutes=20), customer_id="dan", offset=100))
    late = payment("bob0", NOON, NOON + timedelta(minutes=30), customer_id="bob", offset=50)
    add(night.root, late)
    night.read(100)
    fill(night.root, LATE_EVENTS, {**late, "stream": "transactions", "event_id": "bob0", "event": "{}", **place})
    compared = night.run()
    causes = {row["event_id"]: row["cause"] for row in night.staged(OUTCOMES)}
    assert causes["bob2"] == "late_event"
    assert (causes["ann2"], causes["dan3"]) == ("unexplained", "stream_down")
    assert causes["gil2"] is None
    assert [row["event_id"] for row in night.staged(HELD_BACK)] == ["ann2", "dan2"]
    assert {row["event_id"] for row in night.staged(CORRECTED)} == {"bob1", "bob2"}
    assert (compared.held_back, compared.waiting, compared.corrections) == (2, 1, 2)


def test_a_pending_alert_that_neither_side_has_any_more_is_withdrawn(night: Night) -> None:
    """An earlier run had left it to the stream; its group is judged again although nothing of it came this day."""
    before = NOON - timedelta(days=3)
    add(night.root, *(payment(f"zoe{at}", before + timedelta(hours=2 * at), customer_id="zoe") for at in range(3)))
    gone = {
        "alert_id": "gone",
        "rule_id": "burst",
        "rule_version": 1,
        "stream": "transactions",
        "outcome": "missed",
        "group": '{"customer_id":"zoe"}',
        "event_id": "zoe1",
        "event_time": before + timedelta(hours=2),
        "cause": "stream_down",
        "day": before.date(),
    }
    fill(night.root, RECONCILIATION, gone)
    compared = night.run(pl.scan_delta(str(night.root / RECONCILIATION.name)).collect())
    assert compared.outcomes["withdrawn"] == 1
    (row,) = (row for row in night.staged(OUTCOMES) if row["outcome"] == "withdrawn")
    assert (row["alert_id"], row["cause"], row["group"]) == ("gone", None, '{"customer_id":"zoe"}')


def test_records_that_are_no_alerts_are_skipped_and_counted(night: Night) -> None:
    """Anybody may write to the topic."""
    night.run()
    whole = alert(night, "ann")
    broken = [{name: None} for name in ("revision", "kind", "text", "source", "event_id", "measures")]
    broken += [{"measures": "[1]"}, {"measures": "{"}, {"revision": -1}, {"revision": 1 << 62}, {"kind": "rumour"}]
    fill(night.root, ALERTS, *(whole | {"alert_id": f"f{at}"} | change for at, change in enumerate(broken)))
    fill(night.root, ALERTS, *(alert(night, who) for who in ("ann", "bob", "cem", "dan", "eve", "flo", "gil")))
    compared = night.run()
    assert (dict(compared.outcomes), compared.unusable) == ({"matched": 7}, len(broken))


def test_an_id_of_two_events_is_seen_across_groups(night: Night) -> None:
    """Ann's first payment has the id of an earlier one of Bob's: the truth has one of them, and knows why."""
    night.run()
    fill(night.root, ALERTS, *(alert(night, who) for who in ("ann", "bob", "cem", "dan", "eve", "flo", "gil")))
    early = NOON - timedelta(minutes=1)
    add(night.root, payment("ann1", early, customer_id="bob", offset=40))
    night.run()
    causes = {row["event_id"]: row["cause"] for row in night.staged(OUTCOMES)}
    assert causes["ann2"] == "duplicate_conflict"


def test_a_misdated_record_is_judged_where_it_is(night: Night) -> None:
    """In between nothing is: no alert of a year ago is looked at because Ann has an event of 1970."""
    add(night.root, payment("old", NOON - timedelta(days=20_000), NOON, customer_id="ann", offset=60))
    night.run()
    spans = judged_spans(night.folder)
    assert [hi - lo <= 2 * HOUR for lo, hi in spans] == [True, True]
    assert dict(night.run().outcomes) == {"missed": 7}
