"""The tests of this folder run on a server of each kind of store."""

from collections.abc import Iterator

import pytest

from tests.support.azure_store import AzureServer
from tests.support.google_store import GoogleServer
from tests.support.object_store import ObjectStore, S3Server

KINDS: tuple[type[ObjectStore], ...] = (S3Server, AzureServer, GoogleServer)


@pytest.fixture(scope="session", params=KINDS, ids=lambda kind: kind.name)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """The server, started when the first test asks for it."""
    kind: type[ObjectStore] = request.param
    with kind(tmp_path_factory.mktemp(kind.name)) as running:
        yield running
