"""Which of the alerts that earlier runs left to the stream a run judges."""

from pathlib import Path

import polars as pl

from nightjar.backfill.inputs.pending_alerts import stage_pending, staged_pending
from nightjar.lake.scanning import columns
from nightjar.lake.tables import RECONCILIATION
from nightjar.rules.versions import RuleSet
from tests.support.payments import REQUEST


def test_without_rules_none_is_judged(tmp_path: Path) -> None:
    """A night before the first rule has nothing to say."""
    pending = pl.DataFrame(schema=columns(RECONCILIATION))
    assert stage_pending(tmp_path, pending, RuleSet(()), REQUEST).rows() == []
    assert staged_pending(tmp_path).rows() == []
