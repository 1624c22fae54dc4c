"""`nightjar rules import`: converts rules of other systems to nightjar's form."""

from pathlib import Path
from typing import Annotated

import typer

from nightjar.cli.context import Context


def import_rules(
    files: Annotated[list[Path], typer.Argument(help="Files of rule messages.", show_default=False)],
    streams: Annotated[
        Path | None,
        typer.Option(help="TOML file of stream declarations, instead of the configured.", show_default=False),
    ] = None,
    to: Annotated[Path | None, typer.Option(help="Folder to write one file per rule into.", show_default=False)] = None,
    publish: Annotated[bool, typer.Option("--publish", help="Publish the rules that are new or changed.")] = False,
) -> None:
    """Convert rules to YAML of ours: from the Flink demo's JSON or text, Debezium's change events, or our own form.

    A file holds one message or many: one per line, a list, or YAML documents. Of several messages about one rule the
    last decides. Without --to and --publish the rules are printed. What cannot be converted is reported with its line,
    and the exit code is 2; then nothing is written or published.
    """
    from nightjar.cli.rule_publishing import publish_rules
    from nightjar.operations.rule_import import read_files, write_files
    from nightjar.rules.states import State
    from nightjar.terminal.console import lines, show_error

    context = Context(streams=streams)
    found = read_files(files, context.streams, context.settings.forms)
    if to is None and not publish:
        context.console.print(lines("---\n".join(text for _, text in found.texts())), soft_wrap=True, end="")
    for each in found.refusals:
        show_error(each)
    if found.refusals:
        raise typer.Exit(2)
    if to is not None:
        for path in write_files(to, dict(found.texts())):
            context.console.print(f"{path}", soft_wrap=True)
    if publish:
        live = [rule for rule in found.rules.values() if rule.state is not State.RETIRED]
        publish_rules(context, live, author=None, reason=None)
