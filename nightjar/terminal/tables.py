"""Tables that can be read at any width of a terminal.

How it works: no value is cut, and none is wrapped but prose, at words. Where the columns do not fit even so, each row
becomes a block of lines, `title  value`. In a file or a pipe, which has no width, the table is as wide as it must be.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.box import HEAVY_HEAD
from rich.console import ConsoleOptions, RenderResult
from rich.table import Table  # noqa: TID251  this is the one place
from rich.text import Text

from nightjar.terminal.console import SafeConsole, line

# What prose is wrapped to at least, where it is longer.
_PROSE = 24
# Of a column's cells to the next column's.
_BETWEEN = 3


@dataclass(frozen=True)
class Heading:
    """A column. is_number: aligned to the right; is_prose: its cells may be wrapped at words."""

    title: str
    is_number: bool = False
    is_prose: bool = False

    def least(self, cells: Sequence[Text]) -> int:
        """The width below which it could not be read: the title may be wrapped at words, a cell only if it is prose."""
        title = max(map(len, self.title.split()), default=0)
        if not self.is_prose:
            return max(title, _widest(cells))
        words = (Text(word).cell_len for cell in cells for word in cell.plain.split())
        return max(title, min(_PROSE, _widest(cells)), min(_PROSE * 2, max(words, default=0)))

    def natural(self, cells: Sequence[Text]) -> int:
        """The width at which nothing is wrapped."""
        return max(line(self.title).cell_len, _widest(cells))


def number(title: str) -> Heading:
    """A column of numbers."""
    return Heading(title, is_number=True)


def prose(title: str) -> Heading:
    """A column of sentences or lists."""
    return Heading(title, is_prose=True)


class RecordTable:
    """Rows with the same columns, to be printed on a console; the title stands above them, the caption below."""

    def __init__(self, *columns: str | Heading, title: str = "", caption: str = "") -> None:
        self.columns = [Heading(each) if isinstance(each, str) else each for each in columns]
        self._title, self._caption = title, caption
        self.rows: list[list[Text]] = []
        self._sections: set[int] = set()

    def add_row(self, *cells: str | Text) -> None:
        """Add a row; a text is one line, whoever wrote it."""
        self.rows.append([line(cell) if isinstance(cell, str) else cell for cell in cells])

    def add_section(self) -> None:
        """Draw a line below the rows so far."""
        self._sections.add(len(self.rows))

    def __rich_console__(self, console: SafeConsole, options: ConsoleOptions) -> RenderResult:
        """The table or the blocks, by the width there is."""
        if self._title:
            yield Text.assemble((self._title, "bold")) if console.is_terminal else line(self._title)
        cells = [[row[at] for row in self.rows] for at in range(len(self.columns))]
        least = [column.least(of) for column, of in zip(self.columns, cells, strict=True)]
        frame = _BETWEEN * len(least) + 1
        room = options.max_width if console.is_terminal else max(options.max_width, sum(least) + frame)
        if sum(least) + frame <= room:
            natural = [column.natural(of) for column, of in zip(self.columns, cells, strict=True)]
            yield from console.render(self._table(_shared(least, natural, room - frame)), options.update(width=room))
        else:
            yield from self._blocks()
        if self._caption:
            yield line((self._caption, "dim"))

    def _table(self, widths: Sequence[int]) -> Table:
        table = Table(box=HEAVY_HEAD)
        for column, width in zip(self.columns, widths, strict=True):
            side = "right" if column.is_number else "left"
            table.add_column(line(column.title), justify=side, width=width, overflow="fold")  # type: ignore[arg-type]
        for at, row in enumerate(self.rows):
            if at in self._sections:
                table.add_section()
            table.add_row(*row)
        return table

    def _blocks(self) -> Iterable[Table | Text]:
        for at, row in enumerate(self.rows):
            block = Table.grid(padding=(0, 2, 0, 0))
            block.add_column(no_wrap=True)
            block.add_column(overflow="fold")
            for place, (column, cell) in enumerate(zip(self.columns, row, strict=True)):
                if cell.plain:
                    block.add_row(line((column.title, "dim")), cell, style="" if place else "bold")
            if at:
                yield Text("")
            yield block


def _widest(cells: Iterable[Text]) -> int:
    return max((Text(each).cell_len for cell in cells for each in cell.plain.split("\n")), default=0)


def _shared(least: Sequence[int], natural: Sequence[int], room: int) -> list[int]:
    """Widths between the least and the natural ones: what room is left is shared evenly by those that want it."""
    widths = list(least)
    while (left := room - sum(widths)) > 0 and any(map(int.__lt__, widths, natural)):
        wanting = [at for at, width in enumerate(widths) if width < natural[at]]
        step = max(1, left // len(wanting))
        for at in wanting[:left]:
            widths[at] = min(natural[at], widths[at] + step)
    return widths
