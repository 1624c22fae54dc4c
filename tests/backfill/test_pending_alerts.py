"""Which of the alerts that earlier runs left to the stream a run judges."""

from pathlib import Path

import polars as pl

from nightjar.backfill.inputs.context import RunInputs
from nightjar.backfill.inputs.pending_alerts import stage_pending, staged_pending
from nightjar.backfill.staging import Notes
from nightjar.lake.scanning import columns
from nightjar.lake.tables import RECONCILIATION
from tests.support.payments import REQUEST, config_of


def test_without_rules_none_is_judged(tmp_path: Path) -> None:
    """A night before the first rule has nothing to say."""
    pending = pl.DataFrame(schema=columns(RECONCILIATION))
    run = RunInputs(config_of(tmp_path), REQUEST, Notes(0, 0, {}, []))
    assert stage_pending(run, pending).rows() == []
    assert staged_pending(run.folder).rows() == []
