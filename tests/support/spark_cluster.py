"""A Spark standalone cluster on this machine: a master and workers as processes of their own, on free ports.

It asks for a secret, as a cluster does that others can reach.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from nightjar.jvm.jars import java

_START_SECONDS = 60.0
_MASTER_AT = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"


@dataclass
class SparkCluster:
    """A master and so many workers, alive inside a `with` block. folder: takes logs and the workers' files.

    cores, memory: of each worker; executor_memory: of the one executor that a worker has.
    """

    folder: Path
    workers: int = 2
    cores: int = 1
    memory: str = "2g"
    executor_memory: str = "512m"
    url: str = ""
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _cleanup: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        conf = self.folder / "conf"
        conf.mkdir(parents=True)
        lines = f"spark.authenticate true\nspark.authenticate.secret {secrets.token_hex(16)}\n"
        (conf / "spark-defaults.conf").write_text(lines)
        with ExitStack() as cleanup:  # also where the start fails half-way
            cleanup.callback(self._kill_all)
            self._start("master", "org.apache.spark.deploy.master.Master", "--port", "0")
            self.url = self._logged("master", _MASTER_AT)
            for number in range(self.workers):
                self.start_worker(number)
            for number in range(self.workers):
                self._logged(f"worker-{number}", re.compile(f"({_REGISTERED})"))
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of ours that lead to the cluster; `own_environment` goes with them."""
        conf = {"spark.executor.memory": self.executor_memory, "spark.driver.host": "127.0.0.1"}
        return {"spark_master": self.url, "spark_conf": conf}

    @property
    def own_environment(self) -> dict[str, str]:
        """What a driver needs beside settings of ours: the secret."""
        return {"SPARK_CONF_DIR": str(self.folder / "conf")}

    def start_worker(self, number: int) -> None:
        """Start the worker of this number."""
        own = ["--cores", str(self.cores), "--memory", self.memory, "--work-dir", str(self.folder / f"work-{number}")]
        self._start(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *own, self.url)

    def kill_worker(self, number: int) -> None:
        """End the worker and its executors, as a power cut would."""
        self._kill(f"worker-{number}")

    def executors(self, number: int) -> list[int]:
        """The processes of the JVMs that the worker has started."""
        worker = self._running[f"worker-{number}"]
        children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children")
        found = [int(pid) for file in children.parents[1].glob("*/children") for pid in file.read_text().split()]
        return sorted(found)

    def every_executor(self) -> list[int]:
        """Those of all workers."""
        return [pid for number in range(self.workers) for pid in self.executors(number)]

    def _start(self, name: str, main: str, *arguments: str) -> None:
        home = _spark_home()
        command = [
            java(),
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Xmx192m",
            "-cp",
            f"{self.folder / 'conf'}:{home / 'jars'}/*",
            main,
            "--host",
            "127.0.0.1",
            "--webui-port",
            "0",
            *arguments,
        ]
        environment = {name: of for name, of in os.environ.items() if not name.startswith(("SPARK_", "NIGHTJAR_"))}
        folders = {"CONF_DIR": self.folder / "conf", "LOCAL_DIRS": self.folder / "local", "HOME": home}
        environment |= {f"SPARK_{name}": str(folder) for name, folder in folders.items()}
        environment["SPARK_SCALA_VERSION"] = "2.13"  # Spark's own scripts say so to what they start
        with (self.folder / f"{name}.log").open("wb") as log:
            self._running[name] = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _logged(self, name: str, line: re.Pattern[str]) -> str:
        """What the process's log says in this line, once it does."""
        until = time.monotonic() + _START_SECONDS
        log = self.folder / f"{name}.log"
        while (found := line.search(log.read_text(errors="replace"))) is None:
            ended = self._running[name].poll() is not None
            assert not ended, f"{name} has ended: {log.read_text(errors='replace')[-2000:]}"
            assert time.monotonic() < until, f"{name} does not say {line.pattern!r}: {log.read_text()[-2000:]}"
            time.sleep(0.05)
        return found[1]

    def _kill(self, name: str) -> None:
        process = self._running.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # executors are of the worker's session
        process.wait()

    def _kill_all(self) -> None:
        for name in list(self._running):
            self._kill(name)


def _spark_home() -> Path:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent
