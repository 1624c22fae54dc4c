"""Reading files of events for the commands, with what is doubtful in them."""

from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    import pyarrow as pa

    from nightjar.rules.streams import Stream
    from nightjar.terminal.console import SafeConsole

EVENTS_HELP = "Events as Parquet, CSV or JSON lines, or a folder of such files."
ZONE_HELP = "Zone of the file's times without one, as in UTC or Europe/Berlin. They are refused otherwise."


def read_shown(
    console: "SafeConsole", file: Path, stream: "Stream", *, zone: ZoneInfo | None, arrivals: bool = False
) -> "pa.Table":
    """The file's events (see `read_events`); prints a warning of times that look like epoch seconds."""
    from nightjar.files.event_files import doubtful_times, read_events
    from nightjar.terminal.console import line

    table = read_events(file, stream, zone=zone, arrivals=arrivals)
    if (doubt := doubtful_times(table, stream)) is not None:
        console.print(line(("warning: ", "yellow"), f"{file}: {doubt}"), soft_wrap=True)
    return table
