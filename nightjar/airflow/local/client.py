"""A client for the part of Airflow's REST API that nightjar uses: health, triggering runs, run states, task logs.

It is meant for the Airflow on this machine, so it uses plain HTTP without a proxy. Every request has a connection of
its own, because a stopping Airflow waits for open connections. The token comes from the auth manager and is renewed
when it has expired.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx

from nightjar.rules.errors import NightjarError

# A response is slow while Spark uses all the cores.
ANSWER_SECONDS = 30.0
POLL_SECONDS = 1.0

FINISHED = frozenset({"success", "failed"})


class AirflowApiError(NightjarError):
    """Airflow could not be reached, or rejected the request."""


@dataclass(frozen=True)
class TaskResult:
    """A task's state. state: as Airflow names it, None before it is scheduled; seconds: duration of its last try."""

    name: str
    state: str | None
    seconds: float
    tries: int


@dataclass(frozen=True)
class RunResult:
    """A DAG run's state. tasks: in the order in which they started, then those that have not."""

    run_id: str
    state: str
    seconds: float
    tasks: tuple[TaskResult, ...]

    @property
    def finished(self) -> bool:
        """Whether the run has reached a final state."""
        return self.state in FINISHED


class AirflowClient:
    """The API at `host:port`, below a path such as `/airflow` if a proxy serves it there, used as `user`."""

    def __init__(self, host: str, port: int, user: str, password: str, path: str = "") -> None:
        self.address = f"{host}:{port}{path}"
        self._http = httpx.Client(
            base_url=f"http://{self.address}",
            timeout=ANSWER_SECONDS,
            limits=httpx.Limits(max_keepalive_connections=0),
            trust_env=False,
        )
        self._credentials = {"username": user, "password": password}
        self._token: str | None = None

    def unwell(self) -> list[str]:
        """The unhealthy ones of API, database, scheduler, DAG processor and triggerer.

        Only the API server if it does not respond.
        """
        try:
            code, found = self._send("GET", "/api/v2/monitor/health", None, {})
        except httpx.HTTPError:
            return ["api_server"]
        if code != HTTPStatus.OK:
            return ["api_server"]
        return sorted(name for name, health in found.items() if health and health.get("status") != "healthy")

    def import_errors(self) -> dict[str, str]:
        """File to stack trace of every DAG file that cannot be imported."""
        return {e["filename"]: e["stack_trace"] for e in self._ask("GET", "importErrors")["import_errors"]}

    def warnings(self, dag_id: str) -> list[str]:
        """Airflow's warnings about a DAG, such as a missing pool."""
        return [w["message"] for w in self._ask("GET", f"dagWarnings?dag_id={quote(dag_id)}")["dag_warnings"]]

    def has_dag(self, dag_id: str) -> bool:
        """Whether the DAG is loaded and not stale."""
        code, found = self._authorized("GET", f"/api/v2/dags/{quote(dag_id)}", None)
        return code == HTTPStatus.OK and not found["is_stale"]

    def unpause(self, dag_id: str) -> None:
        """Unpause the DAG; the runs of a paused DAG wait."""
        self._ask("PATCH", f"dags/{quote(dag_id)}?update_mask=is_paused", {"is_paused": False})

    def ensure_pool(self, name: str, slots: int, description: str) -> None:
        """Create a pool unless one of that name exists."""
        body = {"name": name, "slots": slots, "description": description}
        code, found = self._authorized("POST", "/api/v2/pools", body)
        if code not in {HTTPStatus.CREATED, HTTPStatus.CONFLICT}:
            raise self._refused("pools", code, found)

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None) -> str:
        """Trigger a run and return its id. conf: values for the DAG's params.

        Raises:
            AirflowApiError: for example, the DAG's params do not allow a value.
        """
        body = {"logical_date": None, "conf": dict(conf or {})}
        return str(self._ask("POST", f"dags/{quote(dag_id)}/dagRuns", body)["dag_run_id"])

    def run(self, dag_id: str, run_id: str) -> RunResult:
        """The current state of a run."""
        path = _run_path(dag_id, run_id)
        found = self._ask("GET", path)
        tasks = self._ask("GET", f"{path}/taskInstances")["task_instances"]
        tasks.sort(key=lambda task: task["start_date"] or "~")  # ISO dates sort as text, and `~` after them
        return RunResult(run_id, str(found["state"]), _seconds(found), tuple(map(_task_result, tasks)))

    def wait(
        self,
        dag_id: str,
        run_id: str,
        seconds: float,
        on_progress: Callable[[RunResult], object] = lambda _: None,
    ) -> RunResult:
        """Wait until the run has finished and return it. on_progress: called with its state now and at every change.

        Raises:
            AirflowApiError: it has not finished after that many seconds.
        """
        deadline = time.monotonic() + seconds
        seen: object = None
        while True:
            found = self.run(dag_id, run_id)
            states = (found.state, [(task.name, task.state, task.tries) for task in found.tasks])
            if states != seen:
                on_progress(found)
                seen = states
            if found.finished:
                return found
            if time.monotonic() > deadline:
                raise AirflowApiError(
                    f"the run has not finished within {seconds:.0f} s; its tasks: "
                    + ", ".join(f"{task.name} {task.state or 'waiting'}" for task in found.tasks),
                    where=f"{dag_id} {run_id}",
                    remedy=f"See the run and its logs at http://{self.address}/dags/{dag_id}/runs/{quote(run_id)}",
                )
            time.sleep(POLL_SECONDS)

    def clear(self, dag_id: str, run_id: str, task: str) -> None:
        """Have a task of a run, and those after it, run again."""
        body = {
            "dag_run_id": run_id,
            "task_ids": [task],
            "include_downstream": True,
            "only_failed": False,
            "dry_run": False,
        }
        self._ask("POST", f"dags/{quote(dag_id)}/clearTaskInstances", body)

    def required_action(self, dag_id: str, run_id: str, task: str) -> dict[str, Any]:
        """What a task asks a person: `subject`, `body`, `options`, and the answer if there is one."""
        found: dict[str, Any] = self._ask("GET", _action_path(dag_id, run_id, task))
        return found

    def answer(self, dag_id: str, run_id: str, task: str, option: str, values: Mapping[str, Any]) -> None:
        """Answer what a task asks. values: of its form.

        Raises:
            AirflowApiError: for example, somebody has answered already.
        """
        body = {"chosen_options": [option], "params_input": dict(values)}
        self._ask("PATCH", _action_path(dag_id, run_id, task), body)

    def log(self, dag_id: str, run_id: str, task: str, tries: int) -> list[str]:
        """The lines of a task's log, without timestamps."""
        path = f"{_run_path(dag_id, run_id)}/taskInstances/{quote(task)}/logs/{tries}?full_content=true"
        content = self._ask("GET", path)["content"]
        return [line["event"] if isinstance(line, dict) else str(line) for line in content]

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        code, found = self._authorized(method, f"/api/v2/{path}", body)
        if code >= HTTPStatus.BAD_REQUEST:
            raise self._refused(path, code, found)
        return found

    def _authorized(self, method: str, path: str, body: object) -> tuple[int, Any]:
        try:
            for again in (False, True):
                if self._token is None:
                    code, found = self._send("POST", "/auth/token", self._credentials, {})
                    if code != HTTPStatus.CREATED:
                        raise self._refused("auth/token", code, found)
                    self._token = found["access_token"]
                code, found = self._send(method, path, body, {"Authorization": f"Bearer {self._token}"})
                if code != HTTPStatus.UNAUTHORIZED or again:
                    break
                self._token = None
            return code, found
        except httpx.HTTPError as failure:
            raise AirflowApiError(
                f"Airflow does not respond ({failure})", where=self.address, remedy="Is `nightjar airflow` running?"
            ) from None

    def _send(self, method: str, path: str, body: object, headers: Mapping[str, str]) -> tuple[int, Any]:
        answer = self._http.request(method, path, json=body, headers=headers)
        try:
            return answer.status_code, answer.json() if answer.content else None
        except ValueError:
            return answer.status_code, {"detail": answer.text}

    def _refused(self, path: str, code: int, found: object) -> AirflowApiError:
        detail = found.get("detail", found) if isinstance(found, dict) else found
        return AirflowApiError(
            f"Airflow rejected the request ({code}): {detail}",
            where=f"{self.address}/{path}",
            remedy="The response gives the reason",
        )


def _run_path(dag_id: str, run_id: str) -> str:
    return f"dags/{quote(dag_id)}/dagRuns/{quote(run_id, safe='')}"


def _action_path(dag_id: str, run_id: str, task: str) -> str:
    return f"{_run_path(dag_id, run_id)}/taskInstances/{quote(task)}/-1/hitlDetails"


def _task_result(task: Mapping[str, Any]) -> TaskResult:
    return TaskResult(task["task_id"], task["state"], float(task["duration"] or 0.0), int(task["try_number"]))


def _seconds(run: Mapping[str, Any]) -> float:
    if not run["start_date"] or not run["end_date"]:
        return 0.0
    return (datetime.fromisoformat(run["end_date"]) - datetime.fromisoformat(run["start_date"])).total_seconds()
