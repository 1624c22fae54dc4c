"""Purpose: the durable state of the buckets, as files that Spark's commit of a batch makes final.

How it works: a bucket's folder has the entries of its log (statelog.py), each written once under a name of its own,
and a head for each batch that the bucket took part in. A batch starts from the newest head before it. Spark begins a
batch only when the one before it is committed, with the offsets, so that head is the committed one; what an attempt
wrote that failed lies under the number of a batch that is done again, or under names that no head knows. The driver
removes both when it starts. A file appears under its name when it is whole.

A head bears the name of the run of the query that wrote it. A run begins with copies of the heads that were committed,
under its own name, and sees no others: a task of an earlier run may still be at work on a machine that has lost its
driver, and whatever it writes is nothing to this one.

What it does not do: decide what is committed; Spark's commit log does. Nor wait for a file system: what one machine has
written under a name, another must find there.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec

from streaming.statelog import NOTHING, Head

# Begins the error about a file that is not there or not what was written.
STATE_LOST = "the state of the checkpoint cannot be read"

_HEAD = "head-"
_PARTIAL = ".partial-"
# Holds the name of the run whose heads count. Without it they are those of `FIRST`.
_RUN = "run"
# The name of no run: heads of a rebuilt checkpoint, and of releases before there were names.
FIRST = ""


class BucketFiles:
    """The files of one bucket, as a run sees them: the folder is made by the first that is written."""

    def __init__(self, folder: Path, run: str = FIRST) -> None:
        self._folder = folder
        self._suffix = f"-{run}" if run else ""

    def get(self, name: str) -> bytes:
        """The entry of this name. Raises RuntimeError (STATE_LOST) where it cannot be read."""
        try:
            return (self._folder / name).read_bytes()
        except OSError as failure:
            raise RuntimeError(f"{STATE_LOST}: {failure}") from failure

    def put(self, name: str, value: bytes) -> None:
        """Keep an entry."""
        partial = self._folder / f"{_PARTIAL}{uuid.uuid4().hex}"  # process ids repeat on other machines
        try:
            partial.write_bytes(value)
        except FileNotFoundError:
            self._folder.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(value)
        partial.replace(self._folder / name)

    def put_new(self, value: bytes) -> str:
        """Keep an entry under a name that is drawn for it."""
        name = uuid.uuid4().hex
        self.put(name, value)
        return name

    def keep(self, head: Head) -> None:
        """Write the head of a batch, in the place of another attempt's."""
        self.put(self._head(head.version), head.to_bytes())

    def before(self, version: int) -> Head:
        """The newest head before this version."""
        found = max((number for number in self._heads() if number < version), default=None)
        if found is None:
            return Head()
        name = self._head(found)
        try:
            return Head.from_bytes(self.get(name))
        except msgspec.DecodeError as failure:
            raise RuntimeError(f"{STATE_LOST}: {self._folder / name}: {failure}") from failure

    def forget(self, head: Head) -> None:
        """Remove what came before this head, which is committed."""
        for name in [*head.stale, *(self._head(number) for number in self._heads() if number < head.version)]:
            (self._folder / name).unlink(missing_ok=True)

    def keep_only(self, head: Head) -> None:
        """Remove all that this head does not know: nobody has committed it."""
        known = head.names | {self._head(head.version)}
        for file in self._folder.iterdir():
            if file.name not in known:
                file.unlink(missing_ok=True)

    def _head(self, version: int) -> str:
        return f"{_HEAD}{version}{self._suffix}"

    def _heads(self) -> Iterator[int]:
        try:
            names = os.listdir(self._folder)  # noqa: PTH208  half the time of iterdir, in every batch of every bucket
        except FileNotFoundError:
            return
        for name in names:
            number = name.removeprefix(_HEAD).removesuffix(self._suffix)
            if name.startswith(_HEAD) and name.endswith(self._suffix) and number.isdigit():
                yield int(number)


def files_of(state: Path, bucket: int, run: str = FIRST) -> BucketFiles:
    """The files of the bucket of this number, as this run sees them."""
    return BucketFiles(state / str(bucket), run)


def begin(state: Path, version: int | None, run: str) -> None:
    """Have a new run begin with what was committed, alone. version: of the last batch that was, None where none was.

    Whenever this ends, the next `begin` finds the same.
    """
    state.mkdir(parents=True, exist_ok=True)
    last = state / _RUN
    earlier = last.read_text() if last.exists() else FIRST
    folders = [folder for folder in state.iterdir() if folder.is_dir()]
    committed = {folder: BucketFiles(folder, earlier).before((version or 0) + 1) for folder in folders}
    for folder, head in committed.items():
        if head.version != NOTHING:
            BucketFiles(folder, run).keep(head)
    partial = last.with_suffix(".partial")
    partial.write_text(run)
    partial.replace(last)
    for folder, head in committed.items():
        BucketFiles(folder, run).keep_only(head)
