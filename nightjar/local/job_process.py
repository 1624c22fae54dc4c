"""The job as a process of its own: started with `nightjar stream`, its log in a file, stopped cleanly."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from nightjar.local.process import ManagedProcess
from rules.errors import NightjarError

# It finishes its batch first; after that it is killed, and its next start resumes from the checkpoint.
STOP_SECONDS = 60.0


class JobProcessError(NightjarError):
    """The job ended by itself."""


class JobProcess(ManagedProcess):
    """`nightjar stream` in the background, alive inside a `with` block (or between `start` and `stop`).

    environment: added to this process's. folder: where it runs (None: here).
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
        """Stop it with Spark's JVM and its Python workers; its exit code. Nothing happens if it does not run."""
        return super().stop(seconds)
