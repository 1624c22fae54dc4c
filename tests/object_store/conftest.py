"""The tests of this folder run on a server of each kind of store."""

from collections.abc import Iterator

import pytest

from tests.support.azure_store import AzureServer
from tests.support.google_store import GoogleServer
from tests.support.long import long
from tests.support.object_store import ObjectStore, S3Server

KINDS: tuple[type[ObjectStore], ...] = (S3Server, AzureServer, GoogleServer)
# For what starts a JVM for each: in `make test` on one store.
on_each_store = pytest.mark.parametrize(
    "store",
    [pytest.param(kind, id=kind.name, marks=() if kind is S3Server else long) for kind in KINDS],
    indirect=True,
)


@pytest.fixture(scope="session", params=KINDS, ids=lambda kind: kind.name)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """The server, started when the first test asks for it."""
    kind: type[ObjectStore] = request.param
    with kind(tmp_path_factory.mktemp(kind.name)) as running:
        yield running
