"""Opens files of events for reading, and decompresses those with gzip on the way."""

import codecs
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from nightjar.files.errors import EventsError

GZIP = ".gz"
_MAGIC = b"\x1f\x8b"
_AT_ONCE = 1 << 20
# What is compressed more than this, and is larger than this, holds nothing but repetitions: events in text shrink to a
# fifth or a twentieth, and gzip reaches a thousandth.
_MOST_RATIO = 200
_SMALL = 256 << 20


def kind_of(path: Path) -> str:
    """The extension that says what is in a file, in lower case: `.csv` of `EVENTS.CSV.gz`."""
    return (Path(path.stem) if is_compressed(path) else path).suffix.lower()


def is_compressed(path: Path) -> bool:
    """Whether a file is compressed with gzip, by its name."""
    return path.suffix.lower() == GZIP


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file's bytes, decompressed where its name ends in `.gz`, a block at a time.

    Raises:
        OSError: it cannot be read.
        EventsError: it is not compressed, although its name says so, or the other way round; when it is read: it is cut
            off, damaged, or expands to much more than events do.
    """
    with path.open("rb") as file:
        compressed = file.read(len(_MAGIC)) == _MAGIC
        file.seek(0)
        if not is_compressed(path):
            if compressed:
                remedy = f"Name it {path.name}{GZIP}"
                raise EventsError(
                    "is compressed with gzip, which its name does not say", where=str(path), remedy=remedy
                )
            yield file
            return
        if not compressed:
            what = "is not compressed with gzip" if path.stat().st_size else "is empty, not even compressed"
            raise EventsError(what, where=str(path), remedy=f"Leave {GZIP} out of its name, or compress it")
        with io.BufferedReader(_Inflated(path, file), _AT_ONCE) as content:
            yield content


def refuse_utf_16(beginning: bytes, path: Path) -> None:
    """Raise EventsError if the first bytes of a text say that it is in UTF-16, as spreadsheets save "Unicode"."""
    if beginning.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise EventsError("is in UTF-16", where=str(path), remedy="Save it as UTF-8")


class _Inflated(io.RawIOBase):
    """The content of a gzip file."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        super().__init__()
        self._path = path
        self._content = gzip.GzipFile(fileobj=file, mode="rb")
        self._most = max(_SMALL, _MOST_RATIO * path.stat().st_size)
        self._read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            part = self._content.read(len(buffer))
        except EOFError:
            raise self._error("is cut off: its compressed content has no end", "Copy it again, whole") from None
        except (gzip.BadGzipFile, zlib.error) as damage:
            what = f"is damaged: {str(damage).splitlines()[0]}"
            raise self._error(what, "Copy it again, and try it with `gzip -t`") from None
        self._read += len(part)
        if self._read > self._most:
            what = f"expands to more than {_MOST_RATIO} times its size, which events do not"
            raise self._error(what, "Decompress it yourself if it is what you mean to read")
        buffer[: len(part)] = part
        return len(part)

    def _error(self, what: str, remedy: str) -> EventsError:
        return EventsError(what, where=str(self._path), remedy=remedy)
