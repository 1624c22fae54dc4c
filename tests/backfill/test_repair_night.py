"""A day that the gate rejects, repaired, and run again."""

import polars as pl
import pytest

from nightjar.backfill.upkeep.repair import Repairing, repairable
from nightjar.expectations.findings import GateError
from nightjar.lake import delta
from nightjar.lake.scanning import scan
from nightjar.lake.tables import events_table
from tests.support.nights import DAY, FirstNight

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_the_gate_accepts_what_was_repaired(first_night: FirstNight) -> None:
    """Three records twice, and two deleted: the gate names the command, and passes once it has done its work."""
    night = first_night.night
    root, table = night.config.lake.root, events_table(night.config.streams["transactions"])
    whole = scan(root, table).sort("partition", "offset").collect()
    mine = whole.filter(pl.col("arrival_date") == DAY.date())
    twice = mine.slice(10, 3).to_arrow(compat_level=pl.CompatLevel.oldest()).cast(table.arrow)
    delta.add(root, table, twice, "somebody", 1)
    gone = mine.get_column("offset")[20:22].to_list()
    delta.opened(root, table).delete(f"offset IN ({gone[0]}, {gone[1]})")
    night.run("rejected", "evaluate")
    with pytest.raises(GateError) as refused:
        night.run("rejected", "gate")
    assert "each Kafka record occurs once" in str(refused.value)
    assert "no record of the topic is missing" in str(refused.value)
    assert f"`nightjar lake repair --day {DAY.date()}`" in str(refused.value)

    repairing = Repairing(night.config, repairable(night.config)[table.name], DAY.date())
    found = repairing.apply()
    assert (found.rows, found.rows_after) == (mine.height + 1, mine.height)
    assert scan(root, table).sort("partition", "offset").collect().equals(whole)
    night.run("repaired", "evaluate", "gate")
