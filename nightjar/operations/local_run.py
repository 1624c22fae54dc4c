"""Starts a local Kafka and the job in processes of their own, and keeps the job running."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial

from nightjar.configuration import data_dir
from nightjar.configuration.settings import Settings
from nightjar.kafka import topics
from nightjar.local.job_process import JobProcess
from nightjar.local.kafka import LocalKafka
from nightjar.operations.job_watch import await_running
from nightjar.operations.locks import refuse_running
from nightjar.processes.supervision import keep_running
from nightjar.rules.streams import Stream
from nightjar.terminal.stages import Stages


@contextmanager
def everything_started(
    settings: Settings, streams: Mapping[str, Stream], stages: Stages
) -> Iterator[Callable[[], None]]:
    """Start Kafka, unless one is configured, and the job, and stop them at the end.

    Yields what starts the job again where it dies, until it is interrupted or that is of no use.

    Raises:
        AlreadyRunningError: a job runs on the checkpoint.
    """
    data_dir.prepare(settings.data_dir)
    refuse_running(settings.checkpoint.resolve())
    with ExitStack() as started:
        environment, check = {}, _nothing
        if settings.bootstrap_servers:
            stages.note(f"using Kafka at {settings.bootstrap_servers}")
        else:
            with stages.stage("Kafka", f"starting a local broker; its data and its log are in {settings.kafka_dir}"):
                broker = LocalKafka(settings)
                started.callback(_stop, stages, "Kafka", broker.stop)
                broker.start()
                check = broker.check
                settings = broker.settings
                environment = {"NIGHTJAR_BOOTSTRAP_SERVERS": broker.bootstrap, "NIGHTJAR_KAFKA": "{}"}
                stages.note(f"listening on {broker.bootstrap}")
        with stages.stage("Topics", "creating the missing ones"):
            made = topics.ensure(settings, streams.values())
            stages.note(f"created {', '.join(made)}" if made else "all exist")
        job = JobProcess(settings.data_dir / "job.log", environment)
        with stages.stage("Job", f"starting Spark; its log is {job.log}"):
            started.callback(_stop, stages, "the job, once its batch is finished", job.stop)
            job.start()
            with stages.waiting("takes half a minute on a slow machine"):
                await_running(settings, job)
        yield partial(keep_running, job, lambda text: stages.announce("Job", text), check)


def _nothing() -> None:
    """The brokers are somebody else's."""


def _stop(stages: Stages, doing: str, stop: Callable[[], object]) -> None:
    stages.announce("Stopping", doing)
    stop()
