"""`nightjar jars`: downloads the jars that Spark and the local broker need."""

from typing import Annotated

import typer

from nightjar.cli.context import Context


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("jars")(resolve_jars)


def resolve_jars(
    archive: Annotated[
        bool, typer.Option("--archive/--no-archive", help="Also write an archive of Spark's classes: faster starts.")
    ] = True,
) -> None:
    """Download Spark's connectors and a Kafka broker from Maven Central, check their checksums, and print the folder.

    Run it once after each installation, as a user who may write to that folder; NIGHTJAR_JAR_DIR names another one.
    Needs Java 17. A repository of your own is configured in Ivy's settings.
    """
    from nightjar.jvm.bridge import compile_bridge
    from nightjar.jvm.jars import JarsError, resolve
    from nightjar.operations import prepare_classes

    context, folder = Context(), resolve()
    compile_bridge()
    if archive:
        try:
            prepare_classes.make()
        except JarsError as failure:  # everything works without it
            context.progress.print(f"warning: {failure}", soft_wrap=True)
    context.console.print(str(folder), soft_wrap=True)
