"""Running the command line as a person does."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from nightjar.configuration.settings import Settings


def run(
    *arguments: str, code: int = 0, environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `nightjar …` and check its exit code; the finished process has its output."""
    command = [str(Path(sys.executable).with_name("nightjar")), *arguments]
    given = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/nonexistent",
        "COLUMNS": "200",
        "LC_ALL": "C.UTF-8",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        **(environment or {}),
    }
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=given, cwd=folder, timeout=120)
    assert done.returncode == code, f"{arguments} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def environment(settings: Settings) -> dict[str, str]:
    """What makes the command line use the test's topics."""
    names = [
        "bootstrap_servers",
        "rules_topic",
        "rule_status_topic",
        "alerts_topic",
        "job_progress_topic",
        "late_events_topic",
        "labels_topic",
        "snoozes_topic",
    ]
    return {f"NIGHTJAR_{name.upper()}": str(getattr(settings, name)) for name in names}
