"""Reads a CSV file a block at a time, and finds the lines in which its rows are."""

import csv
import io
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
from pyarrow import csv as arrow_csv

from nightjar.files.errors import EventsError
from nightjar.files.opening import kind_of, opened, refuse_utf_16

TAB_SEPARATED = ".tsv"
KINDS = (".csv", TAB_SEPARATED)
# Bytes that are read at once; no line may be longer.
_BLOCK = 8 << 20
_LONGEST_MARK = 2  # bytes that say the encoding
_TAB = "\t"
_USUAL_DELIMITERS = ",;|" + _TAB


class CsvFile:
    """A CSV file, decompressed on the way where its name ends in `.gz`.

    delimiter: None: a tab in `.tsv`, else a comma. names: those of its columns.

    Raises:
        OSError, pa.ArrowInvalid: it cannot be read.
        EventsError: it is empty or in another encoding than UTF-8, or has quotes that are not closed; or see `opened`.
    """

    def __init__(self, path: Path, delimiter: str | None) -> None:
        self._path = path
        self.delimiter = delimiter or (_TAB if kind_of(path) == TAB_SEPARATED else ",")
        with opened(path) as file:
            refuse_utf_16(file.read(_LONGEST_MARK), path)
        self._quoted = self._has_quotes()
        if self._quoted:
            self._refuse_open_quotes()
        self.names = self._header()
        self._rows = (line for line, cells in self._records() if cells == len(self.names))
        self._odd = ((line, cells) for line, cells in self._records() if cells != len(self.names))
        self._rows_passed = 0

    def blocks(self, columns: list[str], malformed: Callable[[], None]) -> Iterator[pa.Table]:
        """The rows, as binary columns; at least one block, which may be empty.

        malformed: is called for each row with more or fewer cells than there are columns, which is left out; what it
        raises is raised.
        """
        raised: list[EventsError] = []

        def handle(_: object) -> str:
            try:
                if not raised:
                    malformed()
            except EventsError as error:
                raised.append(error)
            return "skip"  # after "error" Arrow's threads end so late that they may abort an interpreter that ends

        def refuse() -> None:
            if raised:
                raise raised[0]

        options = arrow_csv.ConvertOptions(
            include_columns=columns,
            column_types=dict.fromkeys(self.names, pa.binary()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        )
        reading = arrow_csv.ReadOptions(block_size=_BLOCK)
        try:
            with (
                opened(self._path) as file,
                arrow_csv.open_csv(file, reading, self._parsing(handle), options) as reader,
            ):
                refuse()
                yield reader.schema.empty_table()
                for batch in reader:
                    refuse()
                    yield pa.table(batch)
                refuse()
        except pa.ArrowInvalid as error:
            if "straddl" in str(error):
                what = f"has a line of more than {_BLOCK >> 20} MB"
                raise EventsError(what, where=str(self._path), remedy="Is it CSV?") from None
            raise

    def line_of(self, row: int) -> int:
        """The line of a row of the blocks, counted from 0 over all; to be asked for in ascending order."""
        line = next(islice(self._rows, row - self._rows_passed, None))
        self._rows_passed = row + 1
        return line

    def next_malformed(self) -> tuple[int, int]:
        """The line and the number of cells of the next row that has too many or too few."""
        return next(self._odd)

    def another_delimiter(self) -> str | None:
        """What seems to separate the columns, where there is only one by the delimiter that was used."""
        if len(self.names) > 1:
            return None
        many = {each: self.names[0].count(each) for each in _USUAL_DELIMITERS if each != self.delimiter}
        likely = max(many, key=lambda each: many[each])
        return likely if many[likely] else None

    def _parsing(self, handler: Callable[[object], str]) -> arrow_csv.ParseOptions:
        return arrow_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True, invalid_row_handler=handler)

    def _header(self) -> list[str]:
        """The first line that has something in it. Arrow's reader would begin to read all of the file for it."""
        with opened(self._path) as file:
            records = csv.reader(_text(file, errors="surrogateescape"), delimiter=self.delimiter)
            try:
                names = next((record for record in records if record), None)
            except csv.Error as failure:
                raise EventsError(f"cannot be read: {failure}", where=str(self._path), remedy="Is it CSV?") from None
        if names is None:
            remedy = "A CSV file begins with a line of the columns' names"
            raise EventsError("is empty", where=str(self._path), remedy=remedy)
        for name in names:
            try:
                name.encode()
            except UnicodeEncodeError:
                shown = name.encode(errors="replace").decode()
                what = f"has the column {shown!r:.80}, whose name is not in UTF-8"
                raise EventsError(what, where=str(self._path), remedy="Save it as UTF-8") from None
        return names

    def _has_quotes(self) -> bool:
        with opened(self._path) as file:
            return any(b'"' in block for block in iter(lambda: file.read(1 << 20), b""))

    def _refuse_open_quotes(self) -> None:
        """Refuse a quote that is never closed, which Arrow's reader would take for the rest of the file."""
        begins = 1
        with opened(self._path) as file:
            records = csv.reader(_text(file), delimiter=self.delimiter, strict=True)
            try:
                for _ in records:
                    begins = records.line_num + 1
            except csv.Error as failure:
                what = "has a quote that is not closed, or is followed by more than the delimiter"
                if "field larger" in str(failure):
                    what = f"has a value of more than {csv.field_size_limit():,} characters: is its quote closed?"
                remedy = 'Close it, and double a quote within quotes: "a 5"" pipe"'
                raise EventsError(what, where=f"{self._path}: line {begins}", remedy=remedy) from None

    def _records(self) -> Iterator[tuple[int, int]]:
        """The line in which each record after the header begins, and its number of cells."""
        with opened(self._path) as file:
            lines = _text(file)
            found: Iterator[tuple[int, int]]
            if self._quoted:
                found = self._quoted_records(lines)
            else:
                found = (
                    (number, line.count(self.delimiter) + 1)
                    for number, line in enumerate(lines, 1)
                    if line.strip("\r\n")
                )
            yield from islice(found, 1, None)

    def _quoted_records(self, lines: io.TextIOWrapper) -> Iterator[tuple[int, int]]:
        records = csv.reader(lines, delimiter=self.delimiter)
        begins = 1
        for record in records:
            if record:
                yield begins, len(record)
            begins = records.line_num + 1


def _text(file: object, errors: str = "replace") -> io.TextIOWrapper:
    return io.TextIOWrapper(file, encoding="utf-8-sig", errors=errors, newline="")  # type: ignore[arg-type]


def shown_delimiter(delimiter: str) -> str:
    """A delimiter as it is given to a command, and shown."""
    return "tab" if delimiter == _TAB else f"'{delimiter}'"
