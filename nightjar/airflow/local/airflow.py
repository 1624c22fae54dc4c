"""Runs a real Airflow on this machine: API server, scheduler, DAG processor and triggerer, on SQLite.

How it works: all its files are in `airflow/` under `data_dir`: `airflow.cfg` (rewritten at each start, keeping its
secrets), the database (created once), one log per component, and `passwords.json` with generated passwords. Each
component runs in its own process session, as under `airflow standalone`. Unlike there, they are stopped with everything
they started, and in the order that lets a running task be reported as killed. `airflow.json` records their processes,
so that a second start on the folder is refused, and processes that outlived a killed parent are stopped first.

What it does not do: it listens on 127.0.0.1 only (Airflow 3.3 sends no telemetry), loads no DAGs from other folders and
runs at most two tasks at a time. Users and passwords are managed by Airflow's simple auth manager: suitable for one
machine, not for production.
"""

import base64
import configparser
import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn, Self

import psutil

from nightjar.airflow.local.client import AirflowClient, RunResult
from nightjar.airflow.stage_client import stop_servers
from nightjar.airflow.submission import LAKE_POOL
from nightjar.configuration.settings import Settings
from nightjar.installation import shipped
from nightjar.processes.process import HOST, ManagedProcess, Record, free_port, refuse_taken, stop_families
from nightjar.rules.errors import NightjarError

USER = "admin"

# Four Python processes import Airflow at once: about 25 s on two slow cores, several times that on a busy machine.
START_SECONDS = 180.0

# A component stops within a few seconds, a Spark task once its JVM has exited; after this time they are killed.
STOP_SECONDS = 20.0

POLL_SECONDS = 0.25

COMPONENTS = {
    "scheduler": ["scheduler", "--skip-serve-logs"],
    "triggerer": ["triggerer", "--skip-serve-logs"],
    "dag-processor": ["dag-processor"],
    # The timeout also limits how long it waits for open browser connections when it is stopped.
    "api-server": ["api-server", "--worker-timeout", "5"],
}


class LocalAirflowError(NightjarError):
    """The local Airflow cannot be started, or one of its components exited."""


class LocalAirflow:
    """An Airflow under `settings.data_dir`, running inside a `with` block (or between `start` and `stop`).

    environment: added to this process's, for the components and thus for the tasks. folder: their working directory
    (None: this process's). schedule: whether scheduled runs start; triggered runs start in any case. path: under which
    a proxy serves it, such as `/airflow`. `port` and `new_password` are set by `start`; `new_password` is None if an
    earlier start has created the password.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        schedule: bool = True,
        path: str = "",
    ) -> None:
        self.home = (settings.data_dir / "airflow").resolve()
        self.port = settings.airflow_port
        self.new_password: str | None = None
        self._settings = settings
        self._environment = dict(environment or {})
        self._folder = folder
        self._schedule = schedule
        self._path = path
        self._components: dict[str, ManagedProcess] = {}
        self._record = Record(self.home / "airflow.json")
        self._users = {**settings.airflow_users, USER: "admin"}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """URL of its UI."""
        return f"http://{HOST}:{self.port}{self._path}"

    @property
    def password_file(self) -> Path:
        """JSON object of user to password, readable by its owner only."""
        return self.home / "passwords.json"

    @property
    def client(self) -> AirflowClient:
        """A client of its API, logged in as administrator."""
        return self.client_of(USER)

    def client_of(self, user: str) -> AirflowClient:
        """A client of its API, logged in as one of its users."""
        return AirflowClient(HOST, self.port, user, json.loads(self.password_file.read_text())[user], self._path)

    def start(self) -> None:
        """Start it and return once all components are healthy.

        Raises:
            LocalAirflowError: another one is running on the folder, the port is taken, or it did not come up; the
                message includes the end of a log.
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
        """Stop it and everything it started; kill them after `STOP_SECONDS` or when interrupted.

        Does nothing if it is not running.
        """
        running, self._components = self._running(), {}
        if not running:
            return
        try:
            # The scheduler first, while the API server still runs: killed tasks report their end to it.
            if "scheduler" in running:
                stop_families([running.pop("scheduler")], STOP_SECONDS)
        finally:
            stop_families(running.values(), STOP_SECONDS)
            stop_servers(str(self.home))
            self._record.remove()

    def check(self) -> None:
        """Raise LocalAirflowError with the end of the log if a component has exited."""
        for component in self._components.values():
            component.check()

    def wait(self) -> NoReturn:
        """Block until interrupted.

        Raises:
            LocalAirflowError: a component exits.
        """
        while True:
            self.check()
            time.sleep(1.0)

    def await_dag(self, dag_id: str, seconds: float = START_SECONDS) -> None:
        """Return once the DAG is loaded.

        Raises:
            LocalAirflowError: it cannot be loaded, with the import error if there is one.
        """
        deadline = time.monotonic() + seconds
        client = self.client
        while not client.has_dag(dag_id):
            self.check()
            if errors := client.import_errors():
                file, trace = next(iter(errors.items()))
                raise LocalAirflowError(
                    f"cannot be imported:\n{trace}", where=file, remedy="The last line gives the reason"
                )
            if time.monotonic() > deadline:
                raise self._components["dag-processor"].failure(f"the DAG {dag_id} was not loaded in {seconds:.0f} s")
            time.sleep(POLL_SECONDS)

    def run(
        self,
        dag_id: str,
        conf: Mapping[str, Any] | None = None,
        *,
        seconds: float = 1800.0,
        on_progress: Callable[[RunResult], object] = lambda _: None,
    ) -> RunResult:
        """Trigger a run of a DAG, wait at most `seconds` until it has finished, and return its result.

        conf: values for the DAG's params. on_progress: called with the run's current state whenever it changes.
        """
        self.await_dag(dag_id)
        client = self.client
        client.unpause(dag_id)
        run_id = client.trigger(dag_id, conf)

        def checked(found: RunResult) -> None:
            self.check()
            on_progress(found)

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
                    "dags_folder": _escaped(shipped("dags")),
                    "plugins_folder": _escaped(shipped("plugins")),
                    "load_examples": "False",
                    "executor": "LocalExecutor",
                    "parallelism": "2",
                    "simple_auth_manager_users": ",".join(f"{user}:{role}" for user, role in self._users.items()),
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
        known = json.loads(self.password_file.read_text()) if self.password_file.is_file() else {}
        passwords = {user: known.get(user) or secrets.token_urlsafe(12) for user in self._users}
        if passwords == known:
            return
        self.new_password = None if USER in known else passwords[USER]
        partial = self.password_file.with_suffix(".partial")
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(passwords, file)
        partial.replace(self.password_file)

    def _make_database(self) -> None:
        marker, current = self.home / "database-version", version("apache-airflow-core")
        if marker.is_file() and marker.read_text() == current:
            return
        migration = self._started("database", ["db", "migrate"])
        migration.wait()
        if migration.stop(STOP_SECONDS) != 0:
            raise migration.failure("its database could not be created")
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
    """A path for Airflow's configuration, where a single percent sign would start a reference."""
    return str(path).replace("%", "%%")
