"""Starts runs of a DAG from a page inside Airflow, and reads their states, as the user of the page's request.

How it works: Airflow's own REST API is asked within the server's process, with the session of that request. So Airflow
decides who may do what, checks the values of the form, and notes who has started the run.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import httpx
from airflow.api_fastapi.auth.managers.base_auth_manager import COOKIE_NAME_JWT_TOKEN
from fastapi import HTTPException, Request, status

from nightjar.airflow.plugin_access import BASE

# The host is not used: no request leaves the process.
_ORIGIN = "http://airflow.invalid"


class DagRuns:
    """The runs of one DAG."""

    def __init__(self, dag: str) -> None:
        self._dag = dag

    async def start(self, request: Request, form: dict[str, Any]) -> str:
        """Start a run with the values of a form; its id.

        Raises:
            HTTPException: Airflow refuses it, with its reason.
        """
        made = await self._ask(request, "POST", "dagRuns", {"logical_date": None, "conf": form})
        return str(made["dag_run_id"])

    async def states(self, request: Request, run: str, task: str) -> tuple[str, str]:
        """The states of a run and of one of its tasks, empty for a task that has none yet.

        Raises:
            HTTPException: there is no such run, or this user may not see it.
        """
        path = f"dagRuns/{quote(run, safe='')}"
        of_run = await self._ask(request, "GET", path)
        tasks = await self._ask(request, "GET", f"{path}/taskInstances")
        found = [each["state"] for each in tasks["task_instances"] if each["task_id"] == task]
        return str(of_run["state"]), str(*found) if any(found) else ""

    async def is_paused(self, request: Request) -> bool:
        """Whether the DAG is paused, so that its runs wait.

        Raises:
            HTTPException: this user may not see it.
        """
        return bool((await self._ask(request, "GET", ""))["is_paused"])

    async def _ask(self, request: Request, method: str, path: str, body: Any = None) -> Any:
        from airflow.api_fastapi.main import app  # that of this process

        address = f"{BASE}/api/v2/dags/{quote(self._dag, safe='')}{'/' if path else ''}{path}"
        given = {}
        if (credentials := request.headers.get("Authorization")) is not None:
            given["Authorization"] = credentials
        elif (token := request.cookies.get(COOKIE_NAME_JWT_TOKEN)) is not None:
            given["Authorization"] = f"Bearer {token}"
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=_ORIGIN) as client:
            answer = await client.request(method, address, json=body, headers=given)
        if answer.is_success:
            return answer.json()
        raise HTTPException(answer.status_code, _reason(answer))


def _reason(answer: httpx.Response) -> str:
    if answer.status_code == status.HTTP_403_FORBIDDEN:
        return "Airflow does not let you do this with the DAG."
    try:
        return f"Airflow refuses it: {answer.json()['detail']}"
    except (ValueError, KeyError, TypeError):
        return f"Airflow refuses it (status {answer.status_code})."
