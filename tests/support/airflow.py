"""Airflow for tests, always in a process of its own: importing it changes logging and environment of the importer."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from nightjar.jvm.jars import PROJECT

DAGS = PROJECT / "dags"


class Airflow:
    """Runs Python with an Airflow home and database of its own, the DAGs on its path; `report(...)` answers the test.

    environment: added for every script.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environment: dict[str, str] = {}

    def run(self, script: str) -> Any:
        """What the script reported, at most once."""
        answer = self.home / "answer.json"
        answer.unlink(missing_ok=True)
        prelude = (
            f"import json, sys; from pathlib import Path; sys.path.insert(0, {str(DAGS)!r})\n"
            f"def report(found): Path({str(answer)!r}).write_text(json.dumps(found))\n"
        )
        done = self._process([sys.executable, "-c", prelude + script])
        assert done.returncode == 0, done.stdout[-20_000:]
        return json.loads(answer.read_text()) if answer.exists() else None

    def make_database(self) -> None:
        """What `dag.test` needs."""
        done = self._process([sys.executable, "-m", "airflow", "db", "migrate"])
        assert done.returncode == 0, done.stdout

    def _process(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")}
        own = {
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        }
        return subprocess.run(
            command,
            env={**inherited, **own, **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
