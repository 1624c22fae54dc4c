"""The job's answers to rule messages, without the job's query."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from threading import Event, Thread
from types import MappingProxyType

from nightjar.configuration.job import job_config
from nightjar.configuration.settings import Settings
from nightjar.streaming import kafka_clients
from nightjar.streaming.driver.answering import Answering
from tests.support.topics import TestTopics


@contextmanager
def answering(
    own: TestTopics, settings: Settings | None = None, clocks: Mapping[str, int] = MappingProxyType({})
) -> Iterator[None]:
    """Answers rule messages, as the job's driver does.

    settings: other than those of the topics. clocks: of streams, µs.
    """
    done, ready = Event(), Event()
    config = job_config(settings or own.settings, own.streams)

    def answer() -> None:
        with ExitStack() as cleanup:
            consumers = [cleanup.enter_context(kafka_clients.consumer(config)) for _ in range(2)]
            client = cleanup.enter_context(kafka_clients.producer(config))
            driver = Answering(config, consumers, client, lambda: None)
            driver.catch_up()
            ready.set()
            while not done.wait(0.05):
                driver.poll()
                driver.activate(driver.end)
                driver.conclude(clocks, driver.end)

    thread = Thread(target=answer)
    thread.start()
    try:
        assert ready.wait(60)
        yield
    finally:
        done.set()
        thread.join()
