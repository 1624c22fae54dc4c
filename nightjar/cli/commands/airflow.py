"""`nightjar airflow`: a local Airflow with nightjar's DAGs."""

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("airflow")(airflow)


def airflow() -> None:
    """Run Airflow with nightjar's DAGs until Ctrl-C, reachable from this machine only.

    Its database, logs and password are kept in `airflow` under `data_dir` and reused by the next start.
    DAGs are paused until you switch them on.
    """
    from nightjar.cli.console import line
    from nightjar.cli.stages import Stages, terminated_as_interrupt
    from nightjar.configuration import data_dir
    from nightjar.configuration.settings import load_settings
    from nightjar.local.airflow import USER, LocalAirflow

    settings = load_settings()
    data_dir.prepare(settings.data_dir)
    stages = Stages()
    running = LocalAirflow(settings)
    with terminated_as_interrupt():
        try:
            with (
                stages.stage("Airflow", f"starting; its database and its logs are in {running.home}"),
                stages.waiting("takes half a minute, longer the first time"),
            ):
                running.start()
            password = running.new_password or f"in {running.password_file}"
            stages.console.print(
                line(
                    ("Airflow is up", "bold green"),
                    f" at {running.url} (user {USER}, password {password}). Ctrl-C stops it.",
                ),
                soft_wrap=True,
            )
            running.wait()
        except KeyboardInterrupt:
            return
        finally:
            stages.announce("Stopping", "Airflow")
            running.stop()
