"""A Spark standalone cluster of two workers with a core each, started when the first test asks for it."""

from collections.abc import Iterator

import pytest

from tests.support.spark_cluster import SparkCluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """The cluster; its logs are below pytest's folder for temporary files."""
    with SparkCluster(tmp_path_factory.mktemp("spark") / "cluster") as running:
        yield running
