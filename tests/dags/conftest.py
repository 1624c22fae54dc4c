"""The Airflow that tests of DAGs share."""

from collections.abc import Iterator

import pytest

from nightjar.airflow.stage_client import stop_servers
from tests.support.airflow import Airflow


@pytest.fixture(scope="session")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    """An Airflow without a database: enough to read DAGs."""
    home = tmp_path_factory.mktemp("airflow")
    yield Airflow(home)
    stop_servers(str(home))
