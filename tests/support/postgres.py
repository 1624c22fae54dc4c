"""A real PostgreSQL server of a test's own, from Debian's package."""

import os
import shutil
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from nightjar.processes.process import HOST, free_port

_PATIENCE = "60"  # seconds; pg_ctl takes text
_CONFIGURATION = """
listen_addresses = '{host}'
port = {port}
unix_socket_directories = '{folder}'
fsync = off
"""


def binaries() -> Path | None:
    """The folder of PostgreSQL's programs, None if it is not installed. Debian keeps them off PATH."""
    found = shutil.which("pg_ctl")
    if found is not None:
        return Path(found).resolve().parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), key=lambda each: int(each.parts[4]))
    return installed[-1].parent if installed else None


class Postgres:
    """A server with a superuser `postgres`, running inside a `with` block.

    It refuses to run as root, so root starts it as the user that Debian's package makes.
    """

    def __init__(self, programs: Path) -> None:
        self.port = free_port()
        self._programs = programs
        self._user = "postgres" if os.geteuid() == 0 else None
        self._cleanup = ExitStack()

    def __enter__(self) -> Self:
        self.folder = Path(self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix="nightjar-postgres-")))
        if self._user is not None:
            shutil.chown(self.folder, self._user)
        self._run("initdb", "--auth=trust", "--username=postgres", "--no-sync")
        with (self._data / "postgresql.conf").open("a") as configuration:
            configuration.write(_CONFIGURATION.format(host=HOST, port=self.port, folder=self.folder))
        self._control("start")
        self._cleanup.callback(self._control, "stop", "--mode=immediate")
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def restart(self) -> None:
        """Restart it, for settings that are read at a start."""
        self._control("restart", "--mode=fast")

    @property
    def environment(self) -> dict[str, str]:
        """What leads PostgreSQL's clients to it."""
        path = f"{self._programs}{os.pathsep}{os.environ['PATH']}"
        return {"PGHOST": HOST, "PGPORT": str(self.port), "PGUSER": "postgres", "PATH": path}

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _control(self, action: str, *options: str) -> None:
        self._run("pg_ctl", action, *options, "--wait", f"--timeout={_PATIENCE}", f"--log={self.folder / 'log'}")

    def _run(self, program: str, *arguments: str) -> None:
        # the server keeps what it inherits: a pipe would stay open until it ends
        with (self.folder / f"{program}.log").open("a+") as log:
            done = subprocess.run(
                [self._programs / program, *arguments, "--pgdata", self._data],
                user=self._user,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=False,
            )
            log.seek(0)
            assert done.returncode == 0, log.read()
