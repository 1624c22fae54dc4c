"""Purpose: the durable state of the buckets, as files that Spark's commit of a batch makes final.

How it works: a bucket's folder has the entries of its log (statelog.py), each written once under a unique name, and a
head for each batch that the bucket took part in. A batch starts from the newest head before it. Spark begins a batch
only when the one before it is committed, with the offsets, so that head is the committed one; files of a failed attempt
have the number of a batch that is repeated, or names that no head refers to. The driver removes both when it starts.
Files are written atomically.

The name of a head contains the id of the run of the query that wrote it. A run begins with copies of the committed
heads, under its own id, and sees no others: a task of an earlier run may still be running on a machine that has lost
its driver, and this run ignores whatever it writes.

What it does not do: decide what is committed; Spark's commit log does. Nor wait for a file system: a file written by
one machine must be visible to the others.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from streaming.statelog import NOTHING, Head

# Begins the error about a missing or damaged file.
STATE_LOST = "the state of the checkpoint cannot be read"

_HEAD = "head-"
_PARTIAL = ".partial-"
_EXPORT = "history-"
# Holds the id of the run whose heads count. Without it they are those of `FIRST`.
_RUN = "run"
# Not the id of a run: heads of a rebuilt checkpoint, and of releases without ids in their names.
FIRST = ""


class BucketFiles:
    """The files of one bucket, as a run sees them: the first write creates the folder."""

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
        """Write an entry."""
        partial = self._folder / f"{_PARTIAL}{uuid.uuid4().hex}"  # process ids repeat on other machines
        try:
            partial.write_bytes(value)
        except FileNotFoundError:
            self._folder.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(value)
        partial.replace(self._folder / name)

    def put_new(self, value: bytes) -> str:
        """Write an entry under a unique name, and return the name."""
        name = uuid.uuid4().hex
        self.put(name, value)
        return name

    def keep(self, head: Head) -> None:
        """Write the head of a batch, replacing that of another attempt."""
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

    def remove_before(self, head: Head) -> None:
        """Remove what came before this head, which is committed."""
        for name in [*head.stale, *(self._head(number) for number in self._heads() if number < head.version)]:
            (self._folder / name).unlink(missing_ok=True)

    def keep_only(self, head: Head, exports: Collection[str] = ()) -> None:
        """Remove everything that this head does not refer to: it was never committed.

        exports: names of exports of history that are not taken in yet (primed_state.py), whose files stay.
        """
        known = head.names | {self._head(head.version)}
        for file in self._folder.iterdir():
            if file.name not in known and export_of(file.name) not in exports:
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


def of_export(export: str, part: str) -> str:
    """The name of a file of an export of history."""
    return f"{_EXPORT}{export}-{part}"


def export_of(name: str) -> str | None:
    """The export that a file of this name belongs to; None if it is no such file."""
    return name.removeprefix(_EXPORT).partition("-")[0] if name.startswith(_EXPORT) else None


def files_of(state: Path, bucket: int, run: str = FIRST) -> BucketFiles:
    """The files of the bucket of this number, as this run sees them."""
    return BucketFiles(state / str(bucket), run)


def last_run(state: Path) -> str:
    """The id of the run whose heads count."""
    last = state / _RUN
    return last.read_text() if last.exists() else FIRST


def begin(state: Path, version: int | None, run: str, exports: Collection[str] = ()) -> None:
    """Start a new run from the committed state only. version: of the last committed batch, None if there was none.

    exports: as in `keep_only`.
    If it is interrupted, the next `begin` finds the same state.
    """
    state.mkdir(parents=True, exist_ok=True)
    last, earlier = state / _RUN, last_run(state)
    folders = [folder for folder in state.iterdir() if folder.is_dir()]
    committed = {folder: BucketFiles(folder, earlier).before((version or 0) + 1) for folder in folders}
    for folder, head in committed.items():
        if head.version != NOTHING:
            BucketFiles(folder, run).keep(head)
    partial = last.with_suffix(".partial")
    partial.write_text(run)
    partial.replace(last)
    for folder, head in committed.items():
        BucketFiles(folder, run).keep_only(head, exports)
