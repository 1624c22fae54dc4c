"""The consoles every command writes to: results to standard output, progress and errors to standard error.

Output contains untrusted values: event fields, rule texts, topic records. So a string passed to these consoles is
printed as one line of plain text: markup is not interpreted, and control, escape and bidirectional characters and line
ends are escaped (`\\x1b`, `\\n`). Pass styles separately from the text with `line`, and multi-line text with `lines`.
Tables are `nightjar.terminal.tables.RecordTable`.
The linter forbids Rich's own Console and `typer.echo` elsewhere.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.status import Status
from rich.text import Text

from nightjar.rules.errors import NightjarError, printable

# Wrapping at 80 columns does not help in a file or a pipe.
_FILE_WIDTH = 140


class SafeConsole(Console):
    """A Rich console for untrusted text. Tables and progress bars on it are as safe as `print`."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False)
        if not self.is_terminal:
            self.width = _FILE_WIDTH

    def print(self, *objects: Any, **options: Any) -> None:
        """Print; in a file or a pipe nothing is cut off at a width."""
        super().print(*objects, **({} if self.is_terminal else {"crop": False}) | options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Lay out a string without markup, at its real width."""
        return super().render_str(printable(text), **{**options, "markup": False})

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Escape everything on its way to the terminal, except Rich's own control segments."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(_shown(segment.text), segment.style)

    def status(self, status: RenderableType, **options: Any) -> Status:
        """A spinner with a text beside it."""
        return super().status(line(status) if isinstance(status, str) else status, **options)


def result_console() -> SafeConsole:
    """Standard output."""
    return SafeConsole()


def progress_console() -> SafeConsole:
    """Standard error."""
    return SafeConsole(stderr=True)


def line(*parts: str | tuple[str, str]) -> Text:
    """One line made of parts, each a text or (text, style); line ends inside a part are escaped too."""
    return Text.assemble(
        *(printable(part) if isinstance(part, str) else (printable(part[0]), part[1]) for part in parts)
    )


def lines(text: str, style: str = "") -> Text:
    """Text of several lines, such as YAML: its line ends are kept."""
    return Text("\n").join(line((each, style)) for each in text.split("\n"))


def _shown(text: str) -> str:
    return text if text.isprintable() else "\n".join(printable(each) for each in text.split("\n"))


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 event`, `2,000 events`. plural: of a noun whose plural is not formed with "s"."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def show_json(value: Any) -> None:
    """Print one JSON value as one line of ASCII; NaN and infinities become null, types JSON lacks become text."""
    try:
        text = json.dumps(value, default=str, allow_nan=False)
    except ValueError:
        with_nan = json.dumps(value, default=str)
        text = json.dumps(json.loads(with_nan, parse_constant=lambda _: None))
    sys.stdout.write(text.replace("\x7f", "\\u007f") + "\n")
    sys.stdout.flush()


def show_error(error: NightjarError) -> None:
    """Print an error on standard error; its further lines are indented, so no value can pose as another message."""
    console = progress_console()
    first, *further = str(error).split("\n")
    console.print(line(("error: ", "bold red"), first), soft_wrap=True)
    for each in further:
        console.print(line("  ", each), soft_wrap=True)
