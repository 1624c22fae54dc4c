"""The worker processes of the long checks."""

import subprocess
import sys

import psutil
import pytest

from nightjar.jvm.jars import PROJECT

pytestmark = pytest.mark.slow

AT_WORK = """
import os, time
from checks.soak.workers import workers

if __name__ == "__main__":
    with workers(1) as pool:
        print(pool.submit(os.getpid).result(), flush=True)
        pool.submit(time.sleep, 600)
"""


def test_they_end_with_what_started_them() -> None:
    """Also where that was killed."""
    with subprocess.Popen([sys.executable, "-c", AT_WORK], cwd=PROJECT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    _, alive = psutil.wait_procs([worker], 60)
    assert alive == []
