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
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
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
from rules.errors import NightjarError

HOST = "127.0.0.1"
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
        self._processes: dict[str, psutil.Popen] = {}

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
            _refuse_taken(self.port)
        self.port = self.port or _free_port()
        self._write_configuration()
        self._make_password()
        self._make_database()
        try:
            for name, arguments in COMPONENTS.items():
                self._processes[name] = self._started(name, arguments)
            self._record.write_text(
                json.dumps([_identity(psutil.Process()), *map(_identity, self._processes.values())])
            )
            self._await_health()
            self.client.ensure_pool(LAKE_POOL, 1, "The lake has one writer at a time.")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop it and everything it started, after `STOP_SECONDS` or when interrupted by force.

        Nothing happens if it does not run.
        """
        processes, self._processes = self._processes, {}
        if not processes:
            return
        try:
            # The scheduler first: its tasks, killed, tell the API server of it.
            if "scheduler" in processes:
                _stop_trees([processes.pop("scheduler")])
        finally:
            _stop_trees(processes.values())
            stop_servers(str(self.home))
            self._record.unlink(missing_ok=True)

    def check(self) -> None:
        """Raise LocalAirflowError with the end of its log where a component has ended."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                raise self._failure(f"its {name} ended by itself with code {process.returncode}", name)

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
                raise self._failure(f"the DAG {dag_id} was not read within {seconds:.0f} s", "dag-processor")
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

    @property
    def _record(self) -> Path:
        return self.home / "airflow.json"

    def _log(self, name: str) -> Path:
        return self.home / f"{name}.log"

    def _settle_predecessor(self) -> None:
        try:
            parent, *components = json.loads(self._record.read_text())
        except (OSError, ValueError, TypeError):
            return
        living = [process for process in map(_living, components) if process]
        if living and (holder := _living(parent)):
            raise LocalAirflowError(
                f"an Airflow already runs here (started by process {holder.pid})",
                where=str(self.home),
                remedy="Stop it first, or set data_dir and airflow_port to others",
            )
        _stop_trees(living)
        stop_servers(str(self.home))
        self._record.unlink(missing_ok=True)

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
        process = self._started("database", ["db", "migrate"])
        if process.wait() != 0:
            raise self._failure("its database could not be made", "database")
        marker.write_text(current)

    def _started(self, name: str, arguments: list[str]) -> psutil.Popen:
        with self._log(name).open("wb") as log:
            # A session of its own: Ctrl-C reaches the parent only, which then stops them in their turn.
            return psutil.Popen(
                [sys.executable, "-m", "airflow", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._child_environment(),
                cwd=self._folder,
                start_new_session=True,
            )

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
                log = name if name in COMPONENTS else "api-server"
                raise self._failure(f"not healthy after {START_SECONDS:.0f} s: {', '.join(unwell)}", log)
            time.sleep(POLL_SECONDS)

    def _failure(self, what: str, name: str) -> LocalAirflowError:
        with self._log(name).open(errors="replace") as log:
            end = "".join(deque(log, 15))
        return LocalAirflowError(f"{what}; its log ends:\n{end}", where=str(self._log(name)), remedy="The log says why")


def _stop_trees(roots: Iterable[psutil.Process]) -> None:
    """Stop processes with all that came of them, and leave nothing behind."""
    started: list[psutil.Process] = []
    for root in roots:
        tree = _tree(root)
        started += tree
        # The children, because those of the scheduler pass it on to their tasks, and these to Spark.
        for process in tree:
            with suppress(psutil.NoSuchProcess):
                if process == root or process.ppid() == root.pid:
                    process.terminate()
    try:
        psutil.wait_procs(started, STOP_SECONDS)
    finally:
        left = {process for survivor in started if survivor.is_running() for process in _tree(survivor)}
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, STOP_SECONDS)


def _tree(root: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return [root, *root.children(recursive=True)]
    return [root]


def _identity(process: psutil.Process) -> tuple[int, float]:
    return process.pid, process.create_time()


def _living(identity: tuple[int, float]) -> psutil.Process | None:
    """The process of an identity; None where it has ended, though another may have its number now."""
    pid, created = identity
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if abs(process.create_time() - created) < 1.0 and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None


def _refuse_taken(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            raise LocalAirflowError(
                "the port is taken by another program",
                where=f"{HOST}:{port}",
                remedy="Stop that program, or set airflow_port to another (0: any free one)",
            ) from None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _fernet_key() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()


def _escaped(path: Path) -> str:
    """A path as Airflow's configuration takes it, where a percent sign would begin a reference."""
    return str(path).replace("%", "%%")
