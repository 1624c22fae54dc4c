"""Where the output of every command goes: results to standard output, progress and errors to standard error.

What is shown holds values that anybody may have sent: fields of events, texts of rules, records of topics. So a string
given to these consoles is one line of text and nothing else: markup in it is not interpreted, and control, escape and
bidirectional characters and line ends are written out (`\\x1b`, `\\n`). Styles are given apart from the text, with
`line`; text of several lines is given as `lines`. The linter refuses Rich's own Console and `typer.echo` elsewhere.
"""

import json
import math
import sys
from collections.abc import Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.status import Status
from rich.text import Text

from rules.errors import NightjarError, printable

# In a file or a pipe nothing is gained by wrapping at 80 columns.
_FILE_WIDTH = 140

# Doubles from here on are shown as they are: they have no digits after the point.
_HUGE = 1e15


class SafeConsole(Console):
    """Rich's console, for text that may be hostile. Tables and progress bars on it are as safe as `print`."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False)
        if not self.is_terminal:
            self.width = _FILE_WIDTH

    def render_str(self, text: str, **options: Any) -> Text:
        """A string as it is laid out: without markup, and with its real width."""
        return super().render_str(printable(text), **{**options, "markup": False})

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Whatever was printed, on its last step before the terminal; control segments are Rich's own."""
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
    """One line of parts, each a text or (text, style); a line end within a part is written out too."""
    return Text.assemble(
        *(printable(part) if isinstance(part, str) else (printable(part[0]), part[1]) for part in parts)
    )


def lines(text: str, style: str = "") -> Text:
    """A text whose line ends are meant, such as YAML."""
    return Text("\n").join(line((each, style)) for each in text.split("\n"))


def _shown(text: str) -> str:
    return text if text.isprintable() else "\n".join(printable(each) for each in text.split("\n"))


def counted(number: int, noun: str) -> str:
    """`1 event`, `2,000 events`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def readable(value: Any) -> str:
    """A measure for a person: doubles with two digits after the point, small ones with two digits that count."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {readable(each)}" for name, each in value.items())
    if not isinstance(value, float) or not math.isfinite(value) or abs(value) >= _HUGE:
        return "null" if value is None else str(value)
    return f"{value:.2g}" if 0 < abs(value) < 0.01 else f"{value:,.2f}"


def show_json(value: Any) -> None:
    """One JSON value on a line of standard output, in ASCII; what JSON has no form for is text, NaN is null."""
    try:
        text = json.dumps(value, default=str, allow_nan=False)
    except ValueError:
        written = json.dumps(value, default=str)
        text = json.dumps(json.loads(written, parse_constant=lambda _: None))
    sys.stdout.write(text.replace("\x7f", "\\u007f") + "\n")
    sys.stdout.flush()


def show_error(error: NightjarError) -> None:
    """An error on standard error; further lines are indented, so that no value in it can pose as another message."""
    console = progress_console()
    first, *further = str(error).split("\n")
    console.print(line(("error: ", "bold red"), first), soft_wrap=True)
    for each in further:
        console.print(line("  ", each), soft_wrap=True)
