"""Runs the job (`nightjar stream`) as a background process that logs to a file and is stopped cleanly."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from nightjar.processes.process import ManagedProcess
from nightjar.rules.errors import NightjarError

# The job gets this long to finish its batch, then it is killed; its next start resumes from the checkpoint.
STOP_SECONDS = 60.0


class JobProcessError(NightjarError):
    """The job exited on its own."""


class JobProcess(ManagedProcess):
    """`nightjar stream` in the background, running inside a `with` block (or between `start` and `stop`).

    environment: added to this process's. folder: its working directory (None: this process's).
    """

    def __init__(self, log: Path, environment: Mapping[str, str] | None = None, folder: Path | None = None) -> None:
        super().__init__(
            "the job",
            [sys.executable, "-m", "nightjar", "stream"],
            log,
            JobProcessError,
            environment={**os.environ, **(environment or {})},
            folder=folder,
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self, seconds: float = STOP_SECONDS) -> int | None:
        """Stop it with Spark's JVM and Python workers; return its exit code, or None if it is not running."""
        return super().stop(seconds)
