"""Spark on each kind of store: Delta tables beside delta-rs, and a query that resumes from its checkpoint there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nightjar.jvm.jars import PROJECT
from tests.object_store.conftest import on_each_store
from tests.support.long import long
from tests.support.object_store import ObjectStore

pytestmark = [long, on_each_store, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


def test_spark_shares_tables_and_resumes_queries(store: ObjectStore, tmp_path: Path) -> None:
    """Repeated appends add nothing, a commit that exists is not replaced, and no command line has the secret."""
    given = {f"NIGHTJAR_{name}".upper(): value for name, value in store.environment("spark").items()}
    given |= {"NIGHTJAR_SPARK_MASTER": "local[1]", "NIGHTJAR_DRIVER_MEMORY": "1g", "PYTHONPATH": str(PROJECT)}
    given["PYTHONPATH"] = os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")]))
    ran = subprocess.run(
        [sys.executable, "-m", "tests.support.spark_on_store"],
        cwd=tmp_path,
        env=os.environ | given,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-8000:]
    found = json.loads(ran.stdout)
    assert found["copied"] == [6, 9]
    assert (found["spark"], found["polars"], found["version"]) == (9, 9, 3)
    assert found["second_commit"].endswith("FileAlreadyExistsException")
    assert "-cp" in found["command"]
    assert store.secret not in ran.stdout + ran.stderr
