"""Reading files of events for the commands, with what is doubtful in them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo

import typer

from nightjar.rules.errors import SettingsError

if TYPE_CHECKING:
    import pyarrow as pa

    from nightjar.files.bad_lines import BadLines
    from nightjar.rules.streams import Stream
    from nightjar.terminal.console import SafeConsole

EVENTS_HELP = "Events as Parquet, CSV (.csv, .tsv) or JSON (.json, .jsonl, .ndjson), text also with .gz; or a folder."
ZONE_HELP = "Zone of the file's times without one, as in UTC or Europe/Berlin. They are refused otherwise."
Delimiter = Annotated[
    str | None,
    typer.Option(
        help="What separates the columns of CSV: a character, or `tab`. Default: a comma, in .tsv a tab.",
        show_default=False,
    ),
]
MaxBadLines = Annotated[
    int,
    typer.Option(min=0, help="Leave out up to so many lines that cannot be used, and report them."),
]


def delimiter_of(text: str | None) -> str | None:
    """The delimiter that an option gives.

    Raises:
        SettingsError: it is none.
    """
    found = "\t" if text in ("tab", "\\t") else text
    if found is None or (len(found) == 1 and found.isascii() and not found.isalnum() and found not in '"\r\n\0'):
        return found
    raise SettingsError(
        f"{text!r:.40} is not a delimiter", where="--delimiter", remedy="Give one character, as in ';', or tab"
    )


def read_shown(
    console: "SafeConsole",
    file: Path,
    stream: "Stream",
    *,
    bad: "BadLines",
    zone: ZoneInfo | None,
    delimiter: str | None,
    arrivals: bool = False,
    coded: bool = False,
) -> "pa.Table":
    """The file's events (see `read_events`); prints a warning of lines that were left out, with examples, and of times
    that look like epoch seconds."""
    from nightjar.files.event_files import doubtful_times, read_events
    from nightjar.terminal.console import counted, line

    table = read_events(file, stream, zone=zone, arrivals=arrivals, delimiter=delimiter, bad=bad, coded=coded)
    if bad.count:
        left_out = f"{counted(bad.count, 'line')} left out"
        console.print(line(("warning: ", "yellow"), f"{file}: {left_out}, which cannot be used"), soft_wrap=True)
        for example in bad.examples:
            console.print(line(f"  {example}"), soft_wrap=True)
        if (more := bad.count - len(bad.examples)) > 0:
            console.print(line(f"  and {more:,} more"), soft_wrap=True)
    if (doubt := doubtful_times(table, stream)) is not None:
        console.print(line(("warning: ", "yellow"), f"{file}: {doubt}"), soft_wrap=True)
    return table
