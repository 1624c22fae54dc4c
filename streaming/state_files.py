"""Purpose: the durable state of the buckets, as files that Spark's commit of a batch makes final.

How it works: a bucket's folder has the entries of its log (statelog.py), each written once under a name of its own,
and a head for each batch that the bucket took part in. A batch starts from the newest head before it. Spark begins a
batch only when the one before it is committed, with the offsets, so that head is the committed one; what an attempt
wrote that failed lies under the number of a batch that is done again, or under names that no head knows. The driver
removes both when it starts. A file appears under its name when it is whole.

What it does not do: decide what is committed; Spark's commit log does.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec

from streaming.statelog import Head

# Begins what is said of a file that is not there or not what was written.
STATE_LOST = "the state of the checkpoint cannot be read"

_HEAD = "head-"
_PARTIAL = ".partial-"


class BucketFiles:
    """The files of one bucket: its folder is made by the first that is written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, name: str) -> bytes:
        """The entry of this name. Raises RuntimeError (STATE_LOST) where it cannot be read."""
        try:
            return (self._folder / name).read_bytes()
        except OSError as failure:
            raise RuntimeError(f"{STATE_LOST}: {failure}") from failure

    def put(self, name: str, value: bytes) -> None:
        """Keep an entry."""
        partial = self._folder / f"{_PARTIAL}{os.getpid()}-{name}"
        try:
            partial.write_bytes(value)
        except FileNotFoundError:
            self._folder.mkdir(parents=True)
            partial.write_bytes(value)
        partial.replace(self._folder / name)

    def put_new(self, value: bytes) -> str:
        """Keep an entry under a name that is drawn for it."""
        name = uuid.uuid4().hex
        self.put(name, value)
        return name

    def keep(self, head: Head) -> None:
        """Write the head of a batch, in the place of another attempt's."""
        self.put(f"{_HEAD}{head.version}", head.to_bytes())

    def before(self, version: int) -> Head:
        """The newest head before this version."""
        found = max((number for number in self._heads() if number < version), default=None)
        if found is None:
            return Head()
        try:
            return Head.from_bytes(self.get(f"{_HEAD}{found}"))
        except msgspec.DecodeError as failure:
            raise RuntimeError(f"{STATE_LOST}: {self._folder / _HEAD}{found}: {failure}") from failure

    def forget(self, head: Head) -> None:
        """Remove what came before this head, which is committed."""
        for name in [*head.stale, *(f"{_HEAD}{number}" for number in self._heads() if number < head.version)]:
            (self._folder / name).unlink(missing_ok=True)

    def revert(self, version: int) -> None:
        """Remove all that the newest head up to this version does not know: nobody has committed it."""
        head = self.before(version + 1)
        known = head.names | {f"{_HEAD}{head.version}"}
        for file in self._folder.iterdir():
            if file.name not in known:
                file.unlink()

    def _heads(self) -> Iterator[int]:
        try:
            names = os.listdir(self._folder)  # noqa: PTH208  half the time of iterdir, in every batch of every bucket
        except FileNotFoundError:
            return
        yield from (int(name.removeprefix(_HEAD)) for name in names if name.startswith(_HEAD))


def files_of(state: Path, bucket: int) -> BucketFiles:
    """The files of the bucket of this number."""
    return BucketFiles(state / str(bucket))


def revert(state: Path, version: int | None) -> None:
    """Go back to what was committed. version: of the last batch that was, None where none was."""
    for folder in state.iterdir() if state.is_dir() else ():
        BucketFiles(folder).revert(0 if version is None else version)
