"""S15 on a real lake: a person is erased from every file, and the nights before and after agree."""

import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

from nightjar.backfill.erasure.forgetting import Removal, forget
from nightjar.backfill.erasure.person import Person
from nightjar.lake.scanning import scan
from nightjar.lake.tables import FORGOTTEN, RECONCILIATION, RUNS, VIOLATIONS, events_table
from tests.support.nights import Night

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

NOW = datetime(2026, 1, 8, tzinfo=UTC)


def erased(night: Night, customer: str, *, dry_run: bool = False) -> Removal:
    """What was erased of a customer."""
    streams = list(night.config.streams.values())
    return forget(night.config, Person({"customer_id": (customer,)}), streams, NOW, dry_run=dry_run)


def texts_of(file: Path) -> str:
    """All that a file says: its bytes as they are and, of Parquet, its values and statistics."""
    written = file.read_bytes().decode("latin-1")
    if file.suffix == ".parquet":
        table = pq.read_table(file)
        written += str(table.to_pylist()) + str(pq.read_metadata(file).to_dict())
    return written


def files_naming(folder: Path, name: str) -> list[str]:
    """The files under the folder that say the name."""
    return [str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file() and name in texts_of(file)]


def coordinates(night: Night) -> pl.DataFrame:
    """Where and when the records of the stream of payments arrived."""
    rows = scan(night.config.lake.root, events_table(night.config.streams["transactions"]))
    return rows.select("partition", "offset", "arrival_time").sort("partition", "offset").collect()


def busiest(night: Night) -> str:
    """A customer with alerts of their own, whose payments also count in alerts of terminals."""
    root = night.config.lake.root
    alerts = scan(root, VIOLATIONS).filter(pl.col("rule_id") == "busy").collect()
    groups = alerts.get_column("group").map_elements(lambda group: json.loads(group)["customer_id"], pl.String)
    popular = scan(root, VIOLATIONS).filter(pl.col("rule_id") == "popular").collect()
    events = scan(root, events_table(night.config.streams["transactions"])).collect()
    named = popular.join(events, left_on="event_id", right_on="transaction_id").get_column("customer_id")
    both = sorted(set(groups) - set(named))
    payments = events.filter(pl.col("customer_id").is_in(both))
    counts: dict[str, int] = {}
    for alert in popular.iter_rows(named=True):
        terminal, at = json.loads(alert["group"])["terminal_id"], alert["event_time"]
        window = payments.filter(
            pl.col("terminal_id") == terminal, pl.col("event_time").is_between(at - pl.duration(hours=1), at)
        )
        for customer in window.get_column("customer_id"):
            counts[customer] = counts.get(customer, 0) + 1
    return max(sorted(counts), key=counts.__getitem__)


def test_a_person_is_erased_and_the_night_after_has_nothing_unexplained(copied: Night) -> None:
    """S15: no file of the lake names them, coordinates and alerts of others stay, and a rerun publishes nothing."""
    root = copied.config.lake.root
    before = copied.run("before")
    assert before["causes"].keys() == {"late_event"}
    customer = busiest(copied)
    violations = scan(root, VIOLATIONS).collect()
    places = coordinates(copied)
    assert files_naming(root, customer), "else this shows nothing"

    counted = erased(copied, customer, dry_run=True)
    assert counted.tables, "a dry run counts"
    assert scan(root, VIOLATIONS).collect().equals(violations), "and changes nothing"
    done = erased(copied, customer)
    assert done.tables == counted.tables
    assert done.folders == counted.folders == ("before",)
    assert {"events_transactions", "events_logins", "alerts", "violations"} <= {each.table for each in done.tables}

    assert files_naming(root, customer) == []
    assert coordinates(copied).equals(places)
    noted = scan(root, FORGOTTEN).collect()
    erased_events = sum(each.rows for each in done.tables if each.table.startswith("events_"))
    of_union = noted.filter(stream="activity").height  # of whose rules what depends on the person is noted besides
    assert (noted.height - of_union, of_union) == (erased_events, erased_events)
    own = violations.filter(pl.col("group").str.contains(f'"{customer}"'))
    others = violations.join(own, on="alert_id", how="anti")
    assert own.height > 0
    published, kept = copied.alerts().height, scan(root, VIOLATIONS).collect()
    assert set(kept.get_column("alert_id")) == set(others.get_column("alert_id"))

    after = copied.run("after")
    assert "unexplained" not in after["causes"], after["causes"]
    assert after["causes"]["forgotten"] > 0, "a terminal's alerts had counted the person's payments"
    assert (after["corrections"], after["published"], after["held_back"]) == (0, 0, 0)
    assert copied.alerts().height == published
    assert scan(root, VIOLATIONS).collect().sort("alert_id").equals(kept.sort("alert_id"))
    outcomes = scan(root, RECONCILIATION).filter(pl.col("cause") == "forgotten").collect()
    assert not outcomes.get_column("group").str.contains(customer).any()
    assert files_naming(root, customer) == [], "a night brings nobody back"
    assert scan(root, RUNS).filter(pl.col("run_id") == "after").collect()["failure"].to_list() == [None]

    again = erased(copied, customer)
    assert again.tables == ()
    assert again.folders == ()
    assert scan(root, FORGOTTEN).collect().height == noted.height
