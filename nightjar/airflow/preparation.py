"""What an Airflow of your own needs before nightjar's DAGs can run: the pool, and a connection for reports.

Works on the metadata database that the environment's Airflow is configured with, as `airflow pools` does.
"""

import json
from dataclasses import dataclass
from typing import Any

from nightjar.airflow.submission import LAKE_POOL
from nightjar.installation import shipped
from nightjar.rules.errors import NightjarError

BUNDLE_SETTING = "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST"
_BUNDLE = "airflow.dag_processing.bundles.local.LocalDagBundle"


class PreparationError(NightjarError):
    """The Airflow of this environment cannot be prepared."""


@dataclass(frozen=True)
class Prepared:
    """pool, connection: what was created or changed; connection is empty where none was given."""

    pool: str
    connection: str


def bundle() -> dict[str, Any]:
    """The DAG bundle of nightjar's DAGs, as an entry of Airflow's `dag_bundle_config_list`."""
    return {"name": "nightjar", "classpath": _BUNDLE, "kwargs": {"path": str(shipped("dags"))}}


def bundle_setting() -> str:
    """The setting that makes Airflow load nightjar's DAGs beside those of its own folder, as `NAME=VALUE`."""
    own = {"name": "dags-folder", "classpath": _BUNDLE, "kwargs": {}}
    return f"{BUNDLE_SETTING}='{json.dumps([own, bundle()])}'"


def prepare(connection: str = "", uri: str = "") -> Prepared:
    """Create or correct the pool with the lake's single slot, and the connection of this id (if given) from its URI.

    Raises:
        PreparationError: Airflow is not installed, its database cannot be used, or the URI is none.
    """
    try:
        from airflow.models import Connection, Pool
        from airflow.utils.session import create_session
        from sqlalchemy import select
        from sqlalchemy.exc import SQLAlchemyError
    except ImportError as missing:
        raise PreparationError(
            f"Airflow is not installed ({missing})",
            remedy="Install nightjar into Airflow's environment: nightjar[airflow]",
        ) from None
    try:
        with create_session() as session:
            Pool.create_or_update_pool(
                LAKE_POOL, 1, "The lake has one writer at a time.", include_deferred=False, session=session
            )
            if connection:
                made = Connection(conn_id=connection, uri=uri)
                known = session.scalar(select(Connection).where(Connection.conn_id == connection))
                if known is not None:
                    session.delete(known)
                    session.flush()
                session.add(made)
    except SQLAlchemyError as failure:
        raise PreparationError(
            f"its database cannot be used ({type(failure).__name__})",
            where="Airflow",
            remedy="Run `airflow db migrate` first, with the same AIRFLOW_HOME and configuration",
        ) from None
    return Prepared(LAKE_POOL, connection)
