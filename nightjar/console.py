"""The console results are shown on: as wide as the terminal, or as a file may well be."""

from rich.console import Console

# In a file or a pipe nothing is gained by wrapping at 80 columns.
_FILE_WIDTH = 140


def result_console() -> Console:
    """Standard output."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _FILE_WIDTH
    return console
