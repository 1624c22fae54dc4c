"""Installs the wheel of a folder in a fresh environment, as a user would, and tries it there: `make dist-test`.

Nothing of the checkout is used: commands run in an empty folder, without PYTHONPATH. Needs the network, or caches of uv
and Ivy.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

_AT_MOST_SECONDS = 900
_DAGS = ["archive", "lake_maintenance", "nightly_backfill", "rule_backtest", "stream_watchdog"]
# What would lead a command back to the checkout, or to somebody's settings.
_LEFT_OUT = ("AIRFLOW", "NIGHTJAR_", "PYSPARK_", "PYTHON", "VIRTUAL_ENV")
_TEMPLATE = """
from importlib.resources import files
places = {'nightjar.backfill.backtest': 'report.html', 'nightjar.pages': 'site/alerts.html'}
print(all(files(package).joinpath(name).is_file() for package, name in places.items()))
"""
_CASE = """
title: The first login of somebody is an alert
steps:
  - at: 0m
    rules:
      - {id: first, stream: logins, group_by: [customer_id], measures: {n: {count: "*", over: 1h}}, when: n = 1}
  - at: 10m
    events:
      logins:
        - {login_id: l1, event_time: 1m, customer_id: ann, ip: "::1", device: d, status: SUCCESS}
expect:
  final:
    - {rule_id: first, event_id: l1}
"""
_PARSE = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(sys.argv[1])
print(json.dumps({"errors": {str(k): str(v) for k, v in bag.import_errors.items()},
                  "schedules": {name: str(dag.schedule) for name, dag in bag.dags.items()}}))
"""


class Trial:
    """A fresh environment in a folder."""

    def __init__(self, folder: Path, dist: Path) -> None:
        self._bin, self._folder, self._dist = folder / "env" / "bin", folder, dist
        self._uv = str(Path(sys.executable).with_name("uv"))
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_LEFT_OUT)}
        path = f"{self._bin}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**kept, "PATH": path, "AIRFLOW_HOME": str(folder / "airflow")}

    def run(self, *command: str, give: str = "", **environment: str) -> str:
        """What a command prints on standard output. Exits with its error if it fails."""
        sys.stderr.write(f"    {' '.join(command)[:110]}\n")
        work = self._folder / "work"
        work.mkdir(exist_ok=True)
        done = subprocess.run(
            command,
            cwd=work,
            env=self._environment | environment,
            input=give,
            capture_output=True,
            text=True,
            timeout=_AT_MOST_SECONDS,
            check=False,
        )
        if done.returncode:
            sys.exit(f"error: {command[0]} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        return done.stdout

    def install(self) -> None:
        """A new environment with the wheel."""
        (wheel,) = self._dist.glob("nightjar-*.whl")
        constraints, python = self._dist / "constraints.txt", self._bin / "python"
        self.run(self._uv, "venv", "--quiet", "--python", sys.executable, str(self._folder / "env"))
        self.run(
            self._uv,
            "pip",
            "install",
            "--quiet",
            "--python",
            str(python),
            "--constraint",
            str(constraints),
            f"nightjar[airflow] @ file://{wheel.resolve()}",
        )

    def try_commands(self) -> None:
        """Commands that need files beside the code."""
        assert "forget" in self.run("nightjar", "lake", "--help")
        jars = Path(self.run("nightjar", "jars", "--no-archive").strip())
        assert jars.is_relative_to(self._folder / "env" / "share"), jars
        assert {jar.parent.name for jar in jars.glob("*/*.jar")} >= {"spark", "kafka"}
        events, rules = self._folder / "work" / "events.jsonl", self._folder / "work" / "rules.yaml"
        rules.write_text(
            "{id: r, stream: transactions, group_by: [customer_id], when: 'n > 0', "
            "measures: {n: {count: '*', over: 1h}}}"
        )
        event = {
            "transaction_id": "t",
            "event_time": "2026-01-05T10:00:00Z",
            "customer_id": "c",
            "terminal_id": "m",
            "amount": "1.00",
        }
        events.write_text(json.dumps(event))
        assert "card-testing" in self.run("nightjar", "rules", "catalogue", "list")
        self.run("nightjar", "rules", "check", str(rules))
        out = self._folder / "work" / "out.parquet"
        given = ("--stream", "transactions", "--rules", str(rules), "--events", str(events), "--out", str(out))
        self.run("nightjar", "evaluate", *given)
        assert out.is_file()
        assert self.run("python", "-c", _TEMPLATE).strip() == "True"

    def try_pytest(self) -> None:
        """A team's own tests, with the plugin that the wheel brings."""
        self.run(self._uv, "pip", "install", "--quiet", "--python", str(self._bin / "python"), "pytest")
        case = self._folder / "work" / "first.case.yaml"
        case.write_text(_CASE)
        assert "1 passed" in self.run("pytest", str(case))

    def try_airflow(self) -> None:
        """What an Airflow of one's own needs, and whether it can parse the DAGs."""
        self.run("airflow", "db", "migrate")
        (self._folder / "airflow" / "dags").mkdir(parents=True, exist_ok=True)
        own = self._folder / "airflow" / "dags" / "rules.py"
        own.write_text("mine = True\n")
        self.run("python", "-c", "import nightjar.cli.app, rules; assert rules.mine", PYTHONPATH=str(own.parent))
        told = self.run(
            "nightjar", "airflow", "prepare", "--connection", "chat", give="https://:token@chat.example.org\n"
        )
        assert "Pool nightjar_lake has one slot. Connection chat is stored." in told, told
        pools = _listed(self.run("airflow", "pools", "list", "--output", "json"))
        assert [pool["slots"] for pool in pools if pool["pool"] == "nightjar_lake"] in (["1"], [1]), pools
        dags = self.run("nightjar", "airflow", "dags").strip()
        assert Path(dags).is_relative_to(self._folder / "env"), dags
        given = {"NIGHTJAR_SCHEDULES": json.dumps({"archive": "*/7 * * * *", "lake_maintenance": "off"})}
        parsed = json.loads(self.run("python", "-c", _PARSE, dags, **given).splitlines()[-1])
        assert parsed["errors"] == {}, parsed["errors"]
        assert sorted(parsed["schedules"]) == _DAGS
        assert parsed["schedules"]["archive"] == "*/7 * * * *"
        assert parsed["schedules"]["lake_maintenance"] == "None", parsed
        name, setting = self.run("nightjar", "airflow", "dags", "--bundle").strip().split("=", 1)
        given = {name: setting.strip("'"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
        self.run("airflow", "dags", "reserialize", **given)
        listed = _listed(self.run("airflow", "dags", "list", "--output", "json", **given))
        assert sorted(dag["dag_id"] for dag in listed) == _DAGS, listed
        plugins = {"AIRFLOW__CORE__PLUGINS_FOLDER": self.run("nightjar", "airflow", "plugins").strip()}
        found = self.run("airflow", "plugins", "--output", "json", **plugins)
        assert "data_docs" in found, found
        assert "nightjar_pages" in found, found
        (self._folder / "work" / "dags").mkdir()
        self.run("nightjar", "airflow", "dags", "--link", "dags")
        assert (self._folder / "work" / "dags" / "nightjar" / "archive.py").is_file()


def _listed(printed: str) -> list[dict[str, str]]:
    """What an Airflow command has printed as JSON, between what it logs."""
    return json.loads(next(line for line in reversed(printed.splitlines()) if line.startswith("[{")))  # type: ignore[no-any-return]


def main(dist: Path) -> None:
    """Try the wheel of the folder."""
    with tempfile.TemporaryDirectory(prefix="nightjar-wheel-") as folder:
        trial = Trial(Path(folder), dist)
        trial.install()
        trial.try_commands()
        trial.try_pytest()
        trial.try_airflow()
    sys.stderr.write("the wheel works without the checkout\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
