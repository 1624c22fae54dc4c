"""Programs in the background: what they leave when they end."""

import sys
from pathlib import Path

import psutil

from nightjar.local.process import ManagedProcess
from rules.errors import NightjarError


def test_exit_code_that_another_collected_is_unknown(tmp_path: Path) -> None:
    """A program that was killed and waited for elsewhere in this process stops without a code, and starts again."""
    sleeper = ManagedProcess(
        "a sleeper", [sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "log", NightjarError
    )
    sleeper.start()
    assert sleeper.pid is not None
    killed = psutil.Process(sleeper.pid)
    killed.kill()
    killed.wait(20)
    assert sleeper.stop(20) is None
    sleeper.start()
    assert sleeper.stop(20) == -15
