"""Random runs of the job: what its operator emits at each step, what the backfill of the run leaves, and how alerts are
explained then.

`soak/truth.py` does this for thousands of runs.
"""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, given, settings

from tests.support.random_runs import Run, runs, script
from tests.support.run_agreement import RunAgreement

# A run is much to draw, and takes its time on a busy machine; soak/truth.py searches and shrinks.
LARGE = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(suppress_health_check=LARGE, phases=(Phase.generate,))
@given(runs())
def test_the_job_emits_what_the_oracle_allows_and_the_night_explains_the_rest(run: Run) -> None:
    """However partitions are read, clocks go, rules come, and settings change between restarts."""
    complaints = RunAgreement(run, explained=3).complaints
    assert not complaints, script(run, complaints)
