"""`nightjar metrics`: serves metrics to Prometheus."""

import typer

from nightjar.cli.context import Context


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("metrics")(metrics)


def metrics() -> None:
    """Serve metrics of the job, its topics and the lake to Prometheus, until Ctrl-C or SIGTERM.

    `/metrics`; `/healthz`: whether this command works; `/readyz`: whether the job runs. Runs beside the job, so that a
    job that has died is reported on. docs/how-to/metrics.md has dashboards and alerting rules.
    """
    import signal
    import threading

    from nightjar.metrics.exporter import Exporter
    from nightjar.metrics.server import Endpoint, MetricsServer
    from nightjar.terminal.console import line

    context = Context()
    context.log_as_configured()
    endpoint = Endpoint.of(context.settings)
    exporter = Exporter(context.settings)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with MetricsServer(endpoint, exporter.registry, exporter.unhealthy, exporter.not_ready) as server:
        context.progress.print(line(("Metrics", "bold"), f" at {server.address}/metrics"), soft_wrap=True)
        exporter.run(stop)
