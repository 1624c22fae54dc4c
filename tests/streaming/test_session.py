"""What a JVM holds that outlives its Python."""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nightjar.streaming.config import JobError
from nightjar.streaming.driver import session
from nightjar.streaming.driver.session import held_by_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# As Java locks files, which is not how this project's Python does.
HOLDER = """
import fcntl, sys
with open(sys.argv[1], "a+") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    print("holds", flush=True)
    sys.stdin.read()
"""


@pytest.mark.spark
def test_a_job_waits_for_the_jvm_of_an_earlier_one(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused with a remedy while that one lives, and continues once it has ended."""
    monkeypatch.setattr(session, "_JVM_ENDS_SECONDS", 0.5)
    file = tmp_path / "made" / "lock"
    with held_by_jvm(spark, file):
        pass
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holds\n"
        with pytest.raises(JobError, match="JVM of an earlier job does not end"), held_by_jvm(spark, file):
            pass
    with held_by_jvm(spark, file):
        pass
