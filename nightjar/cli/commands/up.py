"""`nightjar up`: runs a local Kafka, unless one is configured, and the job."""

from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from nightjar.terminal.stages import Stages


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("up")(up)


def up() -> None:
    """Start a local Kafka (unless bootstrap_servers is set), create the topics, and run the job until Ctrl-C.

    A job that dies is started again, later each time; after six deaths within minutes it ends with the last error.
    All local data is kept in `data_dir`, and the next start resumes from it.
    """
    from nightjar.configuration import data_dir
    from nightjar.configuration.settings import load_settings
    from nightjar.kafka import topics
    from nightjar.local.job_process import JobProcess
    from nightjar.local.kafka import LocalKafka
    from nightjar.operations.job_watch import await_running
    from nightjar.operations.locks import refuse_running
    from nightjar.processes.supervision import keep_running
    from nightjar.rules.streams import load_streams
    from nightjar.terminal.console import line
    from nightjar.terminal.stages import Stages, terminated_as_interrupt

    settings = load_settings()
    data_dir.prepare(settings.data_dir)
    streams = load_streams(settings.streams)
    refuse_running(settings.checkpoint.resolve())
    stages = Stages()
    with terminated_as_interrupt(), ExitStack() as started:
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
        stages.console.print(
            line(
                ("nightjar is up.", "bold green"),
                " Publish rules with `nightjar rules publish FILE`, watch with `nightjar alerts tail` and "
                "`nightjar status`. Ctrl-C stops everything.",
            ),
            soft_wrap=True,
        )
        with suppress(KeyboardInterrupt):
            keep_running(job, lambda text: stages.announce("Job", text), check)


def _nothing() -> None:
    """The brokers are somebody else's."""


def _stop(stages: "Stages", doing: str, stop: Callable[[], object]) -> None:
    stages.announce("Stopping", doing)
    stop()
