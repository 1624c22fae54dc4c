"""However unevenly partitions are read, and whatever is late on the way: no difference is without a cause."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from nightjar.backfill.evaluate.survey import CONFLICTS
from nightjar.backfill.inputs.histories import histories
from nightjar.backfill.inputs.scope import GroupBy
from nightjar.backfill.lateness import Lateness
from nightjar.backfill.reconcile.causes import CauseFinder
from nightjar.backfill.reconcile.reconciliation import reconcile
from nightjar.contracts.alerts import RECORD_SCHEMA
from nightjar.rules.engine import Engine
from nightjar.rules.engine.store import ARRIVAL, LATE
from nightjar.rules.model import parse_rule
from nightjar.rules.streams import load_streams
from nightjar.rules.truth import Truth
from nightjar.rules.versions import RuleSet
from tests.support.payments import AT_NOON, DAY, HOUR, MINUTE, NOON, STREAM

EVENTS = pa.schema(
    [*STREAM.schema, (ARRIVAL, pa.timestamp("us", "UTC")), ("partition", pa.int32()), ("offset", pa.int64())]
)
RULE = parse_rule(
    {
        "id": "burst",
        "stream": "transactions",
        "group_by": ["customer_id"],
        "when": "n >= 2",
        "measures": {"n": {"count": "*", "over": "1h"}, "first": {"first": "terminal_id", "over": "30m"}},
    },
    load_streams(),
)
BEFORE = AT_NOON - DAY
RULES = RuleSet.of([RULE], BEFORE)


@dataclass(frozen=True)
class History:
    """Payments by partition, in the order of arrival; which partition is read next, and how many of its records; and
    the lateness (minutes) that the stream allowed by then."""

    partitions: list[list[dict[str, Any]]]
    reads: list[tuple[int, int]]
    allowed: int

    def batches(self) -> Iterator[list[dict[str, Any]]]:
        """What is read, and in the end the rest."""
        waiting = [list(of) for of in self.partitions]
        for partition, count in [*self.reads, *((p, 1 << 30) for p in range(len(waiting)))]:
            yield [waiting[partition].pop(0) for _ in range(min(count, len(waiting[partition])))]


@st.composite
def histories_of_partitions(draw: st.DrawFn) -> History:
    """Two hours of a few payments, mostly on time, some up to half an hour late; some come again."""
    count = draw(st.integers(1, 3))
    partitions: list[list[dict[str, Any]]] = [[] for _ in range(count)]
    made: list[dict[str, Any]] = []
    arrived = 0
    for number in range(draw(st.integers(1, 18))):
        arrived += draw(st.integers(0, 12))
        late = draw(st.sampled_from([0, 0, 0, 3, 9, 10, 11, 15, 30]))
        partition = draw(st.integers(0, count - 1))
        of_number = {
            "transaction_id": f"t{number}",
            "event_time": NOON + timedelta(minutes=arrived - late),
            "customer_id": draw(st.sampled_from(["ann", "bob"])),
            "terminal_id": f"m{number % 3}",
            "amount": Decimal(1),
        }
        payment = draw(st.sampled_from(made)) if made and draw(st.integers(0, 5)) == 5 else of_number
        made.append(payment)
        place = {"partition": partition, "offset": len(partitions[partition])}
        partitions[partition].append({**payment, ARRIVAL: NOON + timedelta(minutes=arrived), **place})
    reads = st.lists(st.tuples(st.integers(0, count - 1), st.integers(1, 4)), max_size=12)
    return History(partitions, draw(reads), draw(st.sampled_from([10, 10, 4, 20])))


@given(histories_of_partitions())
def test_every_difference_has_a_cause(history: History) -> None:
    """The stream's alerts follow from the late events that it reported, read when it read them."""
    then = replace(STREAM, allowed_lateness=history.allowed * MINUTE)
    engine, reports, late = Engine(then, RULES), [], set()
    clock = BEFORE
    for batch in history.batches():
        if not batch:
            continue
        clock = max([clock, *(int(event[ARRIVAL].timestamp()) * 1_000_000 for event in batch)])
        advance = engine.advance(pa.Table.from_pylist(batch, EVENTS), clock)
        reports += [{**alert, "source": "stream", "cause": None} for alert in advance.alerts.to_pylist()]
        late |= {(row["partition"], row["offset"]) for row in advance.late.to_pylist()}
    events = [event for of in history.partitions for event in of]
    table = pa.Table.from_pylist(events, EVENTS)
    truth = pl.DataFrame(Truth(STREAM, RULES, table).violations())
    outcomes = reconcile(truth, pl.DataFrame(pa.Table.from_pylist(reports, RECORD_SCHEMA)))
    differing = outcomes.filter(pl.col("outcome") != "matched")
    flagged = table.append_column(LATE, pa.array([(e["partition"], e["offset"]) in late for e in events]))
    flagged = flagged.append_column(CONFLICTS, pa.array([False] * len(events)))
    finder = CauseFinder(
        STREAM,
        RULES,
        GroupBy(("customer_id",), HOUR),
        flagged,
        published=histories(RULES.versions, {("burst", 1): BEFORE}, Lateness([], 10 * MINUTE)),
        consumed=dict.fromkeys(range(3), 1 << 40),
        began={},
    )
    found = set(finder.causes(differing).get_column("cause"))
    assert found <= {"late_event", "settings_changed"}
    assert not found or late
    if history.allowed == 10 and len(history.partitions) == 1:
        assert found <= {"late_event"}
