"""`nightjar rules restore`: puts rules back on Kafka from a lake."""

from pathlib import Path
from typing import Annotated

import typer


def restore(
    lake: Annotated[Path, typer.Option(help="The folder of the lake that had archived them.", show_default=False)],
) -> None:
    """Put rule messages and the job's answers back on Kafka, after Kafka has lost its data.

    Every version keeps its number and its effective time, so alerts keep their ids. Both topics must be empty.
    """
    from nightjar.cli.rule_files import configured
    from nightjar.operations.rule_restore import restore_rules
    from nightjar.terminal.console import counted, result_console

    settings, streams = configured()
    done = restore_rules(settings, streams, lake)
    result_console().print(
        f"Restored {counted(done.messages, 'rule message')} and {counted(done.answers, 'answer')}. Start the job on a "
        "new checkpoint and a new lake.",
        soft_wrap=True,
    )
