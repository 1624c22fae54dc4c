"""Who may see our pages inside Airflow, and the addresses there: what the plugins share.

Airflow mounts the applications of plugins without authentication, so that each page asks here.
"""

from typing import Any
from urllib.parse import urlencode, urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
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


def login_address(request: Request, prefix: str) -> str:
    """Airflow's login, which leads back to the request's page in Airflow's frame. prefix: of the application."""
    origin = conf.get("api", "base_url", fallback="") or str(request.base_url)
    origin = origin.rstrip("/").removesuffix(prefix)
    back = f"{origin}/plugin{prefix}{BASE}{prefix}{request.url.path.partition(prefix)[2]}"
    return f"{BASE}/api/v2/auth/login?{urlencode({'next': back})}"
