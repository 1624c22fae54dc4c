"""Airflow for tests, always in a process of its own: importing it changes logging and environment of the importer."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from nightjar.jvm.jars import PROJECT
from nightjar.rules.streams import SHIPPED
from tests.support.topics import TestTopics

DAGS = PROJECT / "dags"
# What no DAG file may import: it is read again every half minute.
HEAVY = {"pyspark", "pandas", "numpy", "polars", "pyarrow", "numba", "great_expectations", "kafka", "deltalake"}


def settings_file(own: TestTopics, folder: Path) -> Path:
    """A file of the test's settings, and of its streams, which have topics of their own."""
    streams = SHIPPED.read_text()
    for name, stream in own.streams.items():
        streams = streams.replace(f'topic = "{name}"', f'topic = "{stream.topic}"')
    (folder / "streams.toml").write_text(streams)
    values = own.settings.model_dump(
        include={name for name in type(own.settings).model_fields if name.endswith("_topic")}
    )
    values |= {"bootstrap_servers": own.settings.bootstrap, "arrival": "producer", "data_dir": str(folder / "data")}
    values |= {"streams": str(folder / "streams.toml"), "spark_master": "local[2]", "driver_memory": "1g"}
    values |= {"pending_days": 3650}  # the day is long ago by the broker's clock
    path = folder / "nightjar.toml"
    path.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items()))
    return path


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
        """What `dag.test` needs; made once."""
        if (self.home / "airflow.db").exists():
            return
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
