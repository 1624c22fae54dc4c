"""Who may see our pages inside Airflow, and the addresses there: what the plugins share.

Airflow mounts the applications of plugins without authentication, so that each page asks here.
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode, urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import get_user
from airflow.configuration import conf
from fastapi import Depends, HTTPException, Request, status

# The path of Airflow's own address, where a proxy serves it below one. Airflow's UI adds it to no address of a plugin.
BASE = urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")


def reader_of(dag: str) -> Any:
    """A dependency that lets only users pass who may see a DAG."""

    def reader(user: BaseUser = Depends(get_user)) -> None:  # noqa: B008  how FastAPI declares it
        if not get_auth_manager().is_authorized_dag(method="GET", details=DagDetails(id=dag), user=user):
            raise HTTPException(status.HTTP_403_FORBIDDEN, f"It needs access to the DAG {dag}.")

    return Depends(reader)


def actor_of(dag: str, made: Callable[[str | None, str], Any]) -> Any:
    """A dependency that returns what is made of the user's name, and of a secret of Airflow's servers.

    The name is None for a user who may not trigger runs of the DAG, and so may only look.
    """

    def actor(user: BaseUser = Depends(get_user)) -> Any:  # noqa: B008
        manager, runs = get_auth_manager(), DagAccessEntity.RUN
        may = manager.is_authorized_dag(method="POST", access_entity=runs, details=DagDetails(id=dag), user=user)
        return made(user.get_name() if may else None, conf.get("api", "secret_key"))

    return Depends(actor)


def login_address(request: Request, prefix: str) -> str:
    """Airflow's login, which leads back to the request's page in Airflow's frame. prefix: of the application."""
    origin = conf.get("api", "base_url", fallback="") or str(request.base_url)
    origin = origin.rstrip("/").removesuffix(prefix)
    query = f"?{request.url.query}" if request.url.query else ""
    back = f"{origin}/plugin{prefix}{BASE}{prefix}{request.url.path.partition(prefix)[2]}{query}"
    return f"{BASE}/api/v2/auth/login?{urlencode({'next': back})}"
