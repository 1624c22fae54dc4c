"""`nightjar rules restore`: puts rules back on Kafka from a lake."""

from pathlib import Path
from typing import Annotated

import typer

from nightjar.cli.context import Context


def restore(
    lake: Annotated[Path, typer.Option(help="The folder of the lake that had archived them.", show_default=False)],
) -> None:
    """Put rule messages and the job's answers back on Kafka, after Kafka has lost its data.

    Every version keeps its number and its effective time, so alerts keep their ids. Both topics must be empty.
    """
    from nightjar.operations.rule_restore import restore_rules
    from nightjar.terminal.console import counted

    context = Context()
    done = restore_rules(context.settings, context.streams, lake)
    context.console.print(
        f"Restored {counted(done.messages, 'rule message')} and {counted(done.answers, 'answer')}. Start the job on a "
        "new checkpoint and a new lake.",
        soft_wrap=True,
    )
