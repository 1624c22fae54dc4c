"""What many tests share: one real broker and one Spark session for all of them, and topics of a test's own."""

import json
import logging
import os
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from nightjar.configuration.settings import load_settings
from nightjar.local.kafka import LocalKafka
from nightjar.rules.streams import load_streams
from tests.support.topics import CLUSTER, STORE, TestTopics, in_folders_of_its_own

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.object_store import ObjectStore

# Properties are tried on many histories, and on thousands by `python -m checks.soak.truth`; the inner loop (`make
# test-fast`) tries fewer of them.
hypothesis.settings.register_profile("full", max_examples=25, deadline=None)
hypothesis.settings.register_profile("fast", max_examples=10, deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "full"))


# What their short tests cover is measured by `make coverage`.
_MEASURED = [Path(__file__).parent / name for name in ("contracts", "rules")]

# It logs connections that are collected after pytest has closed its streams.
logging.getLogger("py4j").setLevel(logging.WARNING)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long begins first, so that no process is left with it in the end; some are marked by what they are."""
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)
    for item in items:
        if hypothesis.is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.property)
        is_short = not any(item.get_closest_marker(name) for name in ("kafka", "spark", "slow", "property"))
        if is_short and any(item.path.is_relative_to(folder) for folder in _MEASURED):
            item.add_marker(pytest.mark.covering)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A broker on a free port, started when the first test asks for it."""
    given = json.loads(os.environ.get(CLUSTER, "{}"))
    places = {name: given[name] for name in STORE if name in given}
    settings = load_settings(data_dir=tmp_path_factory.mktemp("nightjar"), kafka_port=0, kafka_heap="384m", **places)
    with LocalKafka(settings, short_lived=True) as running:
        yield running


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator["ObjectStore"]:
    """An object store that speaks S3, started when the first test asks for it."""
    from tests.support.object_store import S3Server

    with S3Server(tmp_path_factory.mktemp("object-store")) as running:
        yield running


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """A session with the settings of the job and of the lake, started when the first test asks for it."""
    from tests.support.sessions import session_of

    os.environ["PYSPARK_PYTHON"] = sys.executable
    master = json.loads(os.environ.get(CLUSTER, '{"spark_master": "local[2]"}'))
    session = session_of(load_settings(driver_memory="1g", **master), "tests")
    yield session
    session.stop()


@pytest.fixture
def kafka_topics(broker: LocalKafka, tmp_path: Path) -> TestTopics:
    """The test's own topic names (not made yet: see `ensure`) and data folder, on the session's broker."""
    prefix = f"t{uuid.uuid4().hex[:8]}"
    own = broker.settings.model_dump()
    named = {name: f"{prefix}-{value}" for name, value in own.items() if name.endswith("_topic")}
    settings = broker.settings.model_copy(update={**named, "data_dir": tmp_path / "data"})
    settings = in_folders_of_its_own(settings, prefix)
    streams = {name: replace(stream, topic=f"{prefix}-{stream.topic}") for name, stream in load_streams().items()}
    return TestTopics(settings, streams)


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own settings never reach a test."""
    for name in [name for name in os.environ if name.startswith("NIGHTJAR_")]:
        monkeypatch.delenv(name)
