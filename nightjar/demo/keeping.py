"""Leaves the demo running, to be looked at: the job, Airflow and the pages, until Ctrl-C."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from nightjar.airflow.local.airflow import USER, LocalAirflow
from nightjar.configuration.settings import FILE_VARIABLE, PREFIX, Settings
from nightjar.local.job_process import JobProcess
from nightjar.operations import job_watch
from nightjar.pages.local import local_pages
from nightjar.pages.serving import address_of, bound, server_of
from nightjar.rules.streams import Stream
from nightjar.terminal.console import line
from nightjar.terminal.stages import Stages

_SECONDS = 10


def keep(
    stages: Stages,
    settings: Settings,
    streams: Mapping[str, Stream],
    docs: Path,
    wait: Callable[[LocalAirflow], object] = LocalAirflow.wait,
) -> None:
    """Start what the demo had stopped, and print where everything is.

    Returns, with all of it stopped, when `wait` does; the default waits for Ctrl-C, which is raised.

    settings: with a running broker. docs: the data docs' first page.

    Raises:
        NightjarError: something does not start, or ends by itself.
    """
    environment = {f"{PREFIX}BOOTSTRAP_SERVERS": settings.bootstrap}
    with ExitStack() as running:
        running.callback(stages.announce, "Stopping", "the pages, Airflow and the job")
        job = JobProcess(settings.data_dir / "job.log", environment, settings.data_dir)
        with stages.stage("Job", "starting it again, from its checkpoint"):
            running.enter_context(job)
            job_watch.await_running(settings, job)
        airflow = LocalAirflow(settings, environment=environment, folder=settings.data_dir, schedule=False)
        with stages.stage("Airflow", "starting it again"), stages.waiting("takes half a minute on a slow machine"):
            running.callback(airflow.stop)
            airflow.start()
        address = running.enter_context(_served(settings, streams))
        password = json.loads(airflow.password_file.read_text())[USER]
        variables = {FILE_VARIABLE: f"{settings.data_dir / 'nightjar.toml'}", **environment}
        places = {
            "Pages": address,
            "Airflow": f"{airflow.url} (user {USER}, password {password}): *Browse* has the pages and the data docs",
            "Data docs": str(docs),
            "Commands": f"export {' '.join(f'{name}={value}' for name, value in variables.items())}",
        }
        for name, text in places.items():
            stages.console.print(line((f"{name:<10}", "bold"), text), soft_wrap=True)
        stages.console.print(line("Everything runs until Ctrl-C, which removes it."), soft_wrap=True)
        wait(airflow)


@contextmanager
def _served(settings: Settings, streams: Mapping[str, Stream]) -> Iterator[str]:
    """The pages on a free port; their address with the token."""
    app, access = local_pages(settings, streams)
    server = server_of(app)
    with bound(0) as listening:
        thread = threading.Thread(target=server.run, args=([listening],), name="pages", daemon=True)
        thread.start()
        try:
            yield address_of(listening, access)
        finally:
            server.should_exit = True
            thread.join(_SECONDS)
