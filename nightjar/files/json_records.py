"""Splits files of JSON into records: an object in each line, or the elements of one array."""

import codecs
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from nightjar.files.errors import EventsError
from nightjar.files.opening import kind_of, opened, refuse_utf_16

LINES = (".jsonl", ".ndjson")
ANY = ".json"
# No event is larger: a broker takes a megabyte, if it is not told otherwise. So a file without an end of line, or an
# array that is none, does not fill the memory.
MOST_BYTES = 16 << 20
_AT_ONCE = 1 << 20
_WHITE_SPACE = b" \t\r\n"
# What structures an array, with strings as a whole; one that the block cuts off is a quote alone.
_TOKEN = re.compile(rb'[\[\]{},]|"(?:[^"\\]|\\.)*+"|"', re.DOTALL)


def json_records(path: Path) -> Iterator[tuple[int, bytes]]:
    """The records of a file and the line, from 1, in which each begins. Lines with nothing in them are left out.

    A file `.json` is one array if the first character in it is `[`, and else has a record in each line, as `.jsonl`.

    Raises:
        OSError: it cannot be read.
        EventsError: a record is too long; an array is not closed, or something follows it; or see `opened`.
    """
    with opened(path) as file:
        blank, first = _first(file)
        refuse_utf_16(first, path)
        if kind_of(path) == ANY and first.startswith(b"["):
            yield from _elements(file, first, blank, path)
        else:
            yield from _lines(file, first, blank, path)


def _first(file: BinaryIO) -> tuple[int, bytes]:
    """The number of lines without content at the beginning, and the first part of the line after them."""
    blank, line = 0, file.readline(_AT_ONCE)
    if line.startswith(codecs.BOM_UTF8):
        line = line.removeprefix(codecs.BOM_UTF8) or file.readline(_AT_ONCE)
    while line and not line.strip(_WHITE_SPACE):
        blank += line.endswith(b"\n")
        line = file.readline(_AT_ONCE)
    return blank, line.lstrip(_WHITE_SPACE)


def _lines(file: BinaryIO, first: bytes, blank: int, path: Path) -> Iterator[tuple[int, bytes]]:
    number = blank + 1
    line = first if first.endswith(b"\n") else first + file.readline(MOST_BYTES)
    while line:
        if len(line) > MOST_BYTES:
            raise _too_long(path, number)
        if line.strip():
            yield number, line
        number += 1
        line = file.readline(MOST_BYTES + 1)


def _elements(file: BinaryIO, first: bytes, blank: int, path: Path) -> Iterator[tuple[int, bytes]]:
    """The elements of an array, split at its commas; whether each is JSON is for others to find out."""
    buffer, at, begin, depth, line = first, 1, 1, 1, blank + 1
    begun = False  # whether there has been a comma: an array may have no element, but none is missing after a comma
    while True:
        searched = len(buffer)
        for token in _TOKEN.finditer(buffer, at):
            if token[0] == b'"':
                searched = token.start()
                break
            if token[0] in (b"[", b"{"):
                depth += 1
            elif token[0] in (b"]", b"}"):
                depth -= 1
            if depth == 0 or (depth == 1 and token[0] == b","):
                element = buffer[begin : token.start()]
                if begun or depth or element.strip(_WHITE_SPACE):
                    bare = element.lstrip(_WHITE_SPACE)
                    yield line + element[: len(element) - len(bare)].count(b"\n"), bare
                line, begin, begun = line + element.count(b"\n"), token.end(), True
                if depth == 0:
                    break
        if depth == 0:
            break
        if len(buffer) - begin > MOST_BYTES:
            raise _too_long(path, line)
        if not (more := file.read(_AT_ONCE)):
            what = "is cut off: its array is not closed"
            raise EventsError(what, where=f"{path}: line {line}", remedy="Copy it again, whole")
        buffer, at, begin = buffer[begin:] + more, searched - begin, 0
    rest = buffer[begin:]
    while rest:
        if bare := rest.lstrip(_WHITE_SPACE):
            line += rest[: len(rest) - len(bare)].count(b"\n")
            remedy = f"A file {ANY} is one array of objects, or has an object in each line"
            raise EventsError("something follows the array", where=f"{path}: line {line}", remedy=remedy)
        line += rest.count(b"\n")
        rest = file.read(_AT_ONCE)


def _too_long(path: Path, line: int) -> EventsError:
    what = f"has a record of more than {MOST_BYTES >> 20} MB"
    return EventsError(what, where=f"{path}: line {line}", remedy="Write one event in each line, or an array of events")
