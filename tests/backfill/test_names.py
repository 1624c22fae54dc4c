"""Names that stand twice because neither side may import the other."""

from backfill.causes import Cause
from backfill.reconciliation import Outcome
from backfill.run import STAGES
from expectations.suites import CAUSES, OUTCOMES
from nightjar.airflow import submission


def test_the_gate_knows_every_outcome_and_cause() -> None:
    """Expectations know no backfill."""
    assert set(OUTCOMES) == {outcome.value for outcome in Outcome}
    assert set(CAUSES) == {cause.value for cause in Cause}


def test_the_dag_has_every_stage_in_its_order() -> None:
    """A DAG file imports nothing heavy."""
    assert tuple(STAGES) == submission.STAGES
