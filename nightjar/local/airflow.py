"""A real Airflow on this machine: API server, scheduler, DAG processor and triggerer, on SQLite.

How it works: everything lies in `airflow/` of `data_dir`: `airflow.cfg` (written anew at each start, its secrets kept),
the database (made once), a log a component, and `passwords.json` with a generated password. Each component is a process
in a session of its own, as under `airflow standalone`; but here they are stopped in the order that lets a running task
end as killed, and with everything they started. `airflow.json` says which processes they are, so that a second start on
the folder is refused, and processes that outlived a killed parent are stopped first.

What it does not do: no network beyond 127.0.0.1 (Airflow 3.3 sends no telemetry), no DAGs of other folders, two tasks
at a time. Its users and passwords are Airflow's simple auth manager's: for one machine, not for production.
"""

import base64
import configparser
import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn, Self

import psutil

from nightjar.airflow.stage_client import stop_servers
from nightjar.airflow.submission import LAKE_POOL
from nightjar.configuration.settings import Settings
from nightjar.jvm.jars import PROJECT
from nightjar.local.airflow_client import AirflowClient, RunResult
from nightjar.local.process import HOST, ManagedProcess, Record, free_port, refuse_taken, stop_families
from rules.errors import NightjarError

USER = "admin"

# Four Pythons import Airflow at once: about 25 s on two slow cores, several times that beside a compiler.
START_SECONDS = 180.0

# A component ends within a few seconds, a task of Spark's when its JVM is gone; after that they are killed.
STOP_SECONDS = 20.0

POLL_SECONDS = 0.25

COMPONENTS = {
    "scheduler": ["scheduler", "--skip-serve-logs"],
    "triggerer": ["triggerer", "--skip-serve-logs"],
    "dag-processor": ["dag-processor"],
    # The timeout is also how long it waits for a browser's connections when it is stopped.
    "api-server": ["api-server", "--worker-timeout", "5"],
}


class LocalAirflowError(NightjarError):
    """The local Airflow cannot be started, or one of its components ended."""


class LocalAirflow:
    """An Airflow under `settings.data_dir`, alive inside a `with` block (or between `start` and `stop`).

    environment: added to this process's, for the components and so for the tasks. folder: where they run (None: here).
    schedule: whether runs start by themselves; runs that are asked for start in any case. `port` is known after the
    start, and so is `new_password`, which is None where an earlier start has made one.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        schedule: bool = True,
    ) -> None:
        self.home = (settings.data_dir / "airflow").resolve()
        self.port = settings.airflow_port
        self.new_password: str | None = None
        self._settings = settings
        self._environment = dict(environment or {})
        self._folder = folder
        self._schedule = schedule
        self._components: dict[str, ManagedProcess] = {}
        self._record = Record(self.home / "airflow.json")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Where a browser finds it."""
        return f"http://{HOST}:{self.port}"

    @property
    def password_file(self) -> Path:
        """JSON object: user to password; readable by its owner only."""
        return self.home / "passwords.json"

    @property
    def client(self) -> AirflowClient:
        """Its API, as the administrator."""
        return AirflowClient(HOST, self.port, USER, json.loads(self.password_file.read_text())[USER])

    def start(self) -> None:
        """Start it and return once all of it is healthy.

        Raises:
            LocalAirflowError: another one runs on the folder, the port is taken, or it did not come up; the message
                holds the end of a log.
        """
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._settle_predecessor()
        if self.port:
            refuse_taken(self.port, "airflow_port", LocalAirflowError)
        self.port = self.port or free_port()
        self._write_configuration()
        self._make_password()
        self._make_database()
        try:
            for name, arguments in COMPONENTS.items():
                self._components[name] = self._started(name, arguments)
            self._record.write(self._components)
            self._await_health()
            self.client.ensure_pool(LAKE_POOL, 1, "The lake has one writer at a time.")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop it and everything it started, after `STOP_SECONDS` or when interrupted by force.

        Nothing happens if it does not run.
        """
        running, self._components = self._running(), {}
        if not running:
            return
        try:
            # The scheduler first: its tasks, killed, tell the API server of it.
            if "scheduler" in running:
                stop_families([running.pop("scheduler")], STOP_SECONDS)
        finally:
            stop_families(running.values(), STOP_SECONDS)
            stop_servers(str(self.home))
            self._record.remove()

    def check(self) -> None:
        """Raise LocalAirflowError with the end of its log where a component has ended."""
        for component in self._components.values():
            component.check()

    def wait(self) -> NoReturn:
        """Stay until interrupted. Raises LocalAirflowError where a component ends."""
        while True:
            self.check()
            time.sleep(1.0)

    def await_dag(self, dag_id: str, seconds: float = START_SECONDS) -> None:
        """Return once the DAG has been read. Raises LocalAirflowError if it was not, with what its file says."""
        deadline = time.monotonic() + seconds
        client = self.client
        while not client.has_dag(dag_id):
            self.check()
            if errors := client.import_errors():
                file, trace = next(iter(errors.items()))
                raise LocalAirflowError(f"cannot be imported:\n{trace}", where=file, remedy="The last line says why")
            if time.monotonic() > deadline:
                raise self._components["dag-processor"].failure(f"the DAG {dag_id} was not read within {seconds:.0f} s")
            time.sleep(POLL_SECONDS)

    def run(
        self,
        dag_id: str,
        conf: Mapping[str, Any] | None = None,
        *,
        seconds: float = 1800.0,
        told: Callable[[RunResult], object] = lambda _: None,
    ) -> RunResult:
        """Start a run of a DAG, wait until it has finished (at most so many seconds), and say how it ended.

        conf: values for the DAG's params. told: called with how the run stands whenever a state changes.
        """
        self.await_dag(dag_id)
        client = self.client
        client.unpause(dag_id)
        run_id = client.trigger(dag_id, conf)

        def checked(found: RunResult) -> None:
            self.check()
            told(found)

        return client.wait(dag_id, run_id, seconds, checked)

    def _running(self) -> dict[str, psutil.Process]:
        return {name: of.process for name, of in self._components.items() if of.process is not None}

    def _settle_predecessor(self) -> None:
        remedy = "Stop it first, or set data_dir and airflow_port to others"
        stop_families(self._record.left_behind("an Airflow", LocalAirflowError, remedy), STOP_SECONDS)
        stop_servers(str(self.home))
        self._record.remove()

    def _write_configuration(self) -> None:
        path = self.home / "airflow.cfg"
        kept = configparser.ConfigParser(interpolation=None)
        kept.read(path)
        configuration = configparser.ConfigParser(interpolation=None)
        configuration.read_dict(
            {
                "core": {
                    "dags_folder": _escaped(PROJECT / "dags"),
                    "plugins_folder": _escaped(PROJECT / "plugins"),
                    "load_examples": "False",
                    "executor": "LocalExecutor",
                    "parallelism": "2",
                    "simple_auth_manager_users": f"{USER}:admin",
                    "simple_auth_manager_passwords_file": _escaped(self.password_file),
                    "execution_api_server_url": f"{self.url}/execution/",
                    # The default asks a name server for this machine's full name.
                    "hostname_callable": "socket.gethostname",
                    "fernet_key": kept.get("core", "fernet_key", fallback=_fernet_key()),
                },
                "database": {"sql_alchemy_conn": f"sqlite:///{_escaped(self.home / 'airflow.db')}"},
                "logging": {
                    "base_log_folder": _escaped(self.home / "logs"),
                    "dag_processor_child_process_log_directory": _escaped(self.home / "logs" / "dag_processor"),
                    "colored_console_log": "False",
                },
                "api": {
                    "instance_name": "nightjar",
                    "host": HOST,
                    "port": str(self.port),
                    "base_url": self.url,
                    "workers": "1",
                    "secret_key": kept.get("api", "secret_key", fallback=secrets.token_urlsafe(32)),
                },
                "api_auth": {"jwt_secret": kept.get("api_auth", "jwt_secret", fallback=secrets.token_urlsafe(64))},
                "workers": {"execution_api_timeout": "30"},
                "scheduler": {"use_job_schedule": str(self._schedule)},
                "dag_processor": {"parsing_processes": "1", "refresh_interval": "30"},
                "triggerer": {"capacity": "50"},
            }
        )
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write("# Written by nightjar at each start; the secrets are kept.\n")
            configuration.write(file)

    def _make_password(self) -> None:
        with suppress(FileExistsError):
            descriptor = os.open(self.password_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            self.new_password = secrets.token_urlsafe(12)
            with os.fdopen(descriptor, "w") as file:
                json.dump({USER: self.new_password}, file)

    def _make_database(self) -> None:
        marker, current = self.home / "database-version", version("apache-airflow-core")
        if marker.is_file() and marker.read_text() == current:
            return
        migration = self._started("database", ["db", "migrate"])
        migration.wait()
        if migration.stop(STOP_SECONDS) != 0:
            raise migration.failure("its database could not be made")
        marker.write_text(current)

    def _started(self, name: str, arguments: list[str]) -> ManagedProcess:
        started = ManagedProcess(
            f"its {name}",
            [sys.executable, "-m", "airflow", *arguments],
            self.home / f"{name}.log",
            LocalAirflowError,
            environment=self._child_environment(),
            folder=self._folder,
        )
        started.start()
        return started

    def _child_environment(self) -> dict[str, str]:
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "_AIRFLOW_"))
        }
        direct = ",".join(filter(None, [HOST, "localhost", os.environ.get("NO_PROXY"), os.environ.get("no_proxy")]))
        return {
            **inherited,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), inherited.get("PATH", os.defpath)]),
            "NO_PROXY": direct,
            "no_proxy": direct,
            "PYTHONUNBUFFERED": "1",
            **self._environment,
            "AIRFLOW_HOME": str(self.home),
            "NIGHTJAR_SPARK_MASTER": self._settings.spark_master,
        }

    def _await_health(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        client = self.client
        while unwell := client.unwell():
            self.check()
            if time.monotonic() > deadline:
                name = unwell[0].replace("_", "-")
                component = self._components.get(name, self._components["api-server"])
                raise component.failure(f"not healthy after {START_SECONDS:.0f} s: {', '.join(unwell)}")
            time.sleep(POLL_SECONDS)


def _fernet_key() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()


def _escaped(path: Path) -> str:
    """A path as Airflow's configuration takes it, where a percent sign would begin a reference."""
    return str(path).replace("%", "%%")
