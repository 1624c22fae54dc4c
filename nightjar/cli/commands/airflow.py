"""`nightjar airflow`: a local Airflow with nightjar's DAGs, and what an Airflow of your own needs for them."""

from pathlib import Path
from typing import Annotated

import typer

from nightjar.cli.context import Context

app = typer.Typer(name="airflow", invoke_without_command=True)


def register(main: typer.Typer) -> None:
    """Add the commands."""
    main.add_typer(app)


@app.callback()
def airflow(invoked: typer.Context) -> None:
    """Run Airflow with nightjar's DAGs until Ctrl-C, reachable from this machine only.

    Its database, logs and password are kept in `airflow` under `data_dir` and reused by the next start.
    DAGs are paused until you switch them on.
    """
    if invoked.invoked_subcommand is not None:
        return
    from nightjar.airflow.local.airflow import USER, LocalAirflow
    from nightjar.configuration import data_dir
    from nightjar.terminal.console import line
    from nightjar.terminal.stages import terminated_as_interrupt

    context = Context()
    stages = context.stages
    data_dir.prepare(context.settings.data_dir)
    running = LocalAirflow(context.settings)
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


@app.command()
def dags(
    bundle: Annotated[
        bool, typer.Option("--bundle", help="Print the setting that has Airflow load them as a DAG bundle.")
    ] = False,
    link: Annotated[
        Path | None,
        typer.Option(help="Link the folder into this DAG folder of Airflow, as `nightjar`.", show_default=False),
    ] = None,
) -> None:
    """Print the folder of nightjar's DAGs, for an Airflow of your own."""
    from nightjar.airflow.preparation import bundle_setting

    if bundle:
        Context().console.print(bundle_setting(), soft_wrap=True)
    else:
        _show_or_link("dags", link, "core.dags_folder")


@app.command()
def plugins(
    link: Annotated[
        Path | None,
        typer.Option(help="Link the folder into this plugins folder of Airflow, as `nightjar`.", show_default=False),
    ] = None,
) -> None:
    """Print the folder of nightjar's plugins (the page of the data docs), for an Airflow of your own."""
    _show_or_link("plugins", link, "core.plugins_folder")


def _show_or_link(name: str, folder: Path | None, setting: str) -> None:
    from nightjar.installation import shipped
    from nightjar.rules.errors import SettingsError

    console, ours = Context().console, shipped(name)
    if folder is None:
        console.print(str(ours), soft_wrap=True)
        return
    place = folder / "nightjar"
    if not folder.is_dir() or (place.exists() and not place.is_symlink()):
        what = "is not a folder" if not folder.is_dir() else "already has something else named nightjar"
        raise SettingsError(what, where=str(folder), remedy=f"Name the folder that your Airflow has as {setting}")
    place.unlink(missing_ok=True)
    place.symlink_to(ours, target_is_directory=True)
    console.print(f"{place} -> {ours}", soft_wrap=True)


@app.command()
def prepare(
    connection: Annotated[
        str,
        typer.Option(help="Id of a connection to create, for reports of failed tasks; standard input has its URI."),
    ] = "",
) -> None:
    """Create what nightjar's DAGs need in an Airflow of your own: the pool `nightjar_lake`, and a connection if named.

    Run it in Airflow's environment, after `airflow db migrate`. May be repeated: it corrects what is there.
    """
    import re
    import sys

    from nightjar.airflow.preparation import prepare as prepared
    from nightjar.rules.errors import SettingsError

    if connection and not re.fullmatch(r"[\w.-]{1,200}", connection, re.ASCII):
        remedy = "Use letters, digits, '_', '-' and '.'"
        raise SettingsError("is not the id of a connection", where=f"--connection {connection}", remedy=remedy)
    uri = sys.stdin.readline().strip() if connection else ""
    if connection and "://" not in uri:
        raise SettingsError(
            "is not a URI", where="standard input", remedy="Write the connection, as in https://:TOKEN@chat.example.org"
        )
    done = prepared(connection, uri)
    stored = f" Connection {connection} is stored." if connection else ""
    Context().console.print(f"Pool {done.pool} has one slot.{stored}")
