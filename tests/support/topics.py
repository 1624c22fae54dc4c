"""Topics of a test's own, on the broker that the tests share."""

from dataclasses import dataclass, replace

from nightjar.configuration.settings import Settings
from nightjar.kafka import topics
from nightjar.rules.streams import Stream

# Settings of a cluster, as JSON, for the session that tests share: tests/cluster runs other tests so.
CLUSTER = "TESTS_ON_CLUSTER"
# Those of them that bring lake and checkpoint into an object store.
STORE = ("lake_dir", "checkpoint_dir", "storage_options")


def in_folders_of_its_own(settings: Settings, name: str) -> Settings:
    """The settings with a lake and a checkpoint of this name, where they are in an object store; else they are in
    data_dir."""
    places = {key: f"{of}/{name}" for key in STORE[:2] if (of := getattr(settings, key)) is not None}
    return settings.model_copy(update=places)


@dataclass(frozen=True)
class TestTopics:
    """Settings that connect to the session's broker, and the shipped streams, all with topics nobody else uses."""

    __test__ = False
    settings: Settings
    streams: dict[str, Stream]

    def with_arrival(self, arrival: str) -> "TestTopics":
        """The same, with the topics made for the other arrival; call it before they exist."""
        return replace(self, settings=self.settings.model_copy(update={"arrival": arrival}))

    def ensure(self) -> "TestTopics":
        """Make the topics."""
        topics.ensure(self.settings, self.streams.values())
        return self
