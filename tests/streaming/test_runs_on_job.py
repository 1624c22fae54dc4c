"""Random runs on the real job, over partitions that are read unevenly, with restarts, and a night at the end.

`checks/soak/job_runs.py` does this for hundreds of runs.
"""

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nightjar.local.kafka import LocalKafka
from tests.support.runs_on_job import RunsOnJob, drawn, with_topics_of_its_own

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600)]


def test_every_difference_has_a_cause_and_the_corrections_make_the_truth(
    spark: "SparkSession", broker: LocalKafka, tmp_path: Path
) -> None:
    """Whatever the job made of which batch, or group, and whichever way it goes on after a crash."""
    mark = uuid.uuid4().hex[:8]
    settings = with_topics_of_its_own(broker.settings, mark, tmp_path)
    judged = RunsOnJob(
        spark, settings, f"{mark}-things", drawn(7, 30), 7, phases=5, latencies=("real-time", "micro-batch")
    )
    assert judged.complaints == []
    assert judged.counts["violations"] > 0
    assert judged.counts["changes"] > 0
    assert judged.counts["corrections"] > 0
