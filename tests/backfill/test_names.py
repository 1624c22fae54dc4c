"""Names that stand twice because neither side may import the other."""

from nightjar.backfill.reconcile.causes import Cause
from nightjar.backfill.reconcile.reconciliation import Outcome
from nightjar.backfill.run import Run
from nightjar.backfill.stages import STAGES
from nightjar.expectations.suites import CAUSES, OUTCOMES


def test_the_gate_knows_every_outcome_and_cause() -> None:
    """Expectations know no backfill."""
    assert set(OUTCOMES) == {outcome.value for outcome in Outcome}
    assert set(CAUSES) == {cause.value for cause in Cause}


def test_a_run_does_every_stage() -> None:
    """The DAG and the commands name them, and import nothing heavy."""
    assert all(callable(getattr(Run, stage)) for stage in STAGES)
