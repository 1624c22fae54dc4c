"""`nightjar metrics` in a process of its own, and what it serves."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families


@dataclass
class Running:
    """A running command; lines: of its standard error, up to its address."""

    process: "subprocess.Popen[str]"
    address: str

    def get(self, path: str) -> httpx.Response:
        """What the path answers."""
        return httpx.get(f"{self.address}{path}", timeout=60)

    def metrics(self) -> dict[str, float]:
        """Name and sorted labels, as Prometheus writes them, to the value."""
        response = self.get("/metrics")
        assert response.status_code == 200
        found = {}
        for family in text_string_to_metric_families(response.text):
            for sample in family.samples:
                labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
                found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
        return found

    def await_value(self, name: str, value: float) -> dict[str, float]:
        """All metrics, once one has this value."""
        deadline = time.monotonic() + 150  # a client waits half a minute for a broker
        while (found := self.metrics()).get(name) != value:
            assert time.monotonic() < deadline, f"{name} is {found.get(name)}, and not {value}, in {found}"
            time.sleep(0.1)
        return found


@contextmanager
def running(folder: Path, **settings: Any) -> Iterator[Running]:
    """`nightjar metrics` with these settings, stopped as a supervisor does."""
    given = {f"NIGHTJAR_{name.upper()}": str(value) for name, value in settings.items()}
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "HOME": str(folder)}
    command = [str(Path(sys.executable).with_name("nightjar")), "metrics"]
    with subprocess.Popen(
        command,
        env=environment | given | {"NIGHTJAR_METRICS_PORT": "0", "COLUMNS": "200"},
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            said: list[str] = []
            for line in process.stderr or ():
                said.append(line)
                if found := re.search(r"(https?://\S+)/metrics", line):
                    break
            else:
                raise AssertionError(f"it ended with {process.wait(10)}: {said}")
            yield Running(process, found.group(1))
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
