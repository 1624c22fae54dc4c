"""`nightjar stream`: the job, in the foreground."""

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("stream")(stream)


def stream() -> None:
    """Run the job: events and rules from Kafka, alerts to Kafka, until it is told to stop.

    SIGTERM and Ctrl-C end it cleanly: it finishes its batch, and the next start goes on from there.
    """
    from nightjar import logs, topics
    from nightjar.job_config import job_config
    from nightjar.settings import load_settings
    from nightjar.sole import sole_job
    from rules.streams import load_streams
    from streaming import job

    settings = load_settings()
    streams = load_streams(settings.streams)
    config = job_config(settings, streams)
    logs.configure(settings.log_level)
    with sole_job(config.checkpoint):
        topics.ensure(settings, streams.values())
        job.run(config)
