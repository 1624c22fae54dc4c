"""Runs the job in this process."""

from collections.abc import Mapping
from dataclasses import replace

from nightjar.configuration import data_dir
from nightjar.configuration.job import job_config
from nightjar.configuration.settings import Settings
from nightjar.kafka import topics
from nightjar.kafka.clients import refuse_others
from nightjar.operations.locks import sole_job
from nightjar.rules.streams import Stream
from nightjar.streaming.driver.session import starting


def run_job(settings: Settings, streams: Mapping[str, Stream]) -> None:
    """Run the job in this process until it is stopped.

    Raises:
        AlreadyRunningError: another one runs on the checkpoint.
    """
    config = job_config(settings, streams)
    refuse_others(settings)
    data_dir.prepare(settings.data_dir)
    with sole_job(config.checkpoint) as fence, starting(replace(config, fence=fence)) as session:
        from nightjar.streaming import job  # the engine's imports take a second, while the JVM starts

        job.run(replace(config, fence=fence), session, prepare=lambda: topics.ensure(settings, streams.values()))
