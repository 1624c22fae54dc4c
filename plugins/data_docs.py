"""Shows the data docs of the nights inside Airflow, behind its login: *Data docs* in the menu.

Whoever may see the DAG `nightly_backfill` may see them: they show rows of events.
"""

import mimetypes
from pathlib import PurePosixPath

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
from airflow.api_fastapi.core_api.security import get_user
from airflow.plugins_manager import AirflowPlugin
from fastapi import Depends, FastAPI, HTTPException, status
from fastapi.responses import RedirectResponse, Response

from nightjar.configuration.settings import load_settings

_DAG = "nightly_backfill"
_FIRST = "index.html"

app = FastAPI(title="data docs", docs_url=None, redoc_url=None, openapi_url=None)


@app.get("/{path:path}")
def page(path: str, user: BaseUser = Depends(get_user)) -> Response:  # noqa: B008  how FastAPI declares it
    """A file of the site, of a folder or of an object store. No other site can embed it."""
    if not get_auth_manager().is_authorized_dag(method="GET", details=DagDetails(id=_DAG), user=user):
        raise HTTPException(status.HTTP_403_FORBIDDEN, f"This needs access to the DAG {_DAG}.")
    if not path:
        return RedirectResponse(_FIRST)
    file = load_settings().lake / "data_docs" / "site"
    names = PurePosixPath(path)
    if names.is_absolute() or ".." in names.parts:
        raise HTTPException(status.HTTP_404_NOT_FOUND)
    for name in names.parts:
        file /= name
    if not file.is_file():
        raise HTTPException(status.HTTP_404_NOT_FOUND, "There is no such page. The first night makes the data docs.")
    kind = mimetypes.guess_type(names.name)[0] or "application/octet-stream"
    return Response(file.read_bytes(), media_type=kind, headers={"X-Frame-Options": "SAMEORIGIN"})


class DataDocs(AirflowPlugin):
    """Adds the pages, and the entry in the menu."""

    name = "data_docs"
    fastapi_apps = [{"app": app, "url_prefix": "/data-docs", "name": "data docs"}]  # noqa: RUF012  Airflow's form
    external_views = [  # noqa: RUF012
        {"name": "Data docs", "href": "/data-docs/", "destination": "nav", "category": "browse"},
    ]
