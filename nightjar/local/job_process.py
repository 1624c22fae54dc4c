"""The job as a process of its own: started with `nightjar stream`, its log in a file, stopped cleanly."""

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from rules.errors import NightjarError

# It finishes its batch first; after that it is killed, and its next start goes on from the checkpoint.
STOP_SECONDS = 60.0

# Spark's errors bring their whole query plan.
_LONGEST_LINE = 4000


class JobProcessError(NightjarError):
    """The job ended by itself."""


class JobProcess:
    """`nightjar stream` in the background, alive inside a `with` block (or between `start` and `stop`).

    environment: added to this process's. folder: where it runs (None: here).
    """

    def __init__(self, log: Path, environment: Mapping[str, str] | None = None, folder: Path | None = None) -> None:
        self.log = log
        self._environment = {**os.environ, **(environment or {})}
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it; the log begins anew."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as log:
            # A session of its own: Ctrl-C reaches the parent only, which then stops the job in its turn.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "nightjar", "stream"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                cwd=self._folder,
                start_new_session=True,
            )

    @property
    def pid(self) -> int | None:
        """The job's process, None when it does not run."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    def check(self) -> None:
        """Raise JobProcessError with the end of the log where the job has ended."""
        if self.pid is None:
            code = None if self._process is None else self._process.returncode
            raise JobProcessError(
                f"the job ended by itself with code {code}; its log ends:\n{self.tail()}\n",
                where=str(self.log),
                remedy="The log names the cause",
            )

    def wait(self, seconds: float) -> bool:
        """Whether it ended within that time."""
        if self._process is None:
            return True
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self) -> int | None:
        """Stop it, after `STOP_SECONDS` by force; its exit code. Nothing happens if it does not run."""
        process, self._process = self._process, None
        if process is None:
            return None
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            # Spark's JVM and its Python workers are of the same session: none outlives the job.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        return process.wait()

    def tail(self, lines: int = 20) -> str:
        """The end of its log, its lines cut to a readable length."""
        with self.log.open(errors="replace") as log:
            return "\n".join(line.rstrip()[:_LONGEST_LINE] for line in deque(log, lines))
