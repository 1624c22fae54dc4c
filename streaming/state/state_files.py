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

import uuid
from collections.abc import Collection, Iterable, Iterator

import msgspec

from nightjar.storage.lease import Fence
from nightjar.storage.paths import AnyPath, names_in, remove_tree, write_whole
from nightjar.streaming.state.statelog import NOTHING, Head

# Begins the error about a missing or damaged file.
STATE_LOST = "the state of the checkpoint cannot be read"

_HEAD = "head-"
_EXPORT = "history-"
# Holds the id of the run whose heads count. Without it they are those of `FIRST`.
RUN = "run"
# Not the id of a run: heads of a rebuilt checkpoint, and of releases without ids in their names.
FIRST = ""


class BucketFiles:
    """The files of one bucket, as a run sees them: the first write creates the folder."""

    def __init__(self, folder: AnyPath, run: str = FIRST) -> None:
        self._folder = folder
        self._suffix = f"-{run}" if run else ""

    def get(self, name: str) -> bytes:
        """The entry of this name.

        Raises:
            RuntimeError: it cannot be read (STATE_LOST).
        """
        try:
            return (self._folder / name).read_bytes()
        except OSError as failure:
            raise RuntimeError(f"{STATE_LOST}: {failure}") from failure

    def put(self, name: str, value: bytes) -> None:
        """Write an entry."""
        write_whole(self._folder / name, value)

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

    def keep_only(self, head: Head, exports: Collection[str] = (), fence: Fence | None = None) -> None:
        """Remove everything that this head does not refer to: it was never committed.

        exports: names of exports of history that are not taken in yet (buckets/primed_state.py), whose files stay.
        fence: is checked once the names are known, so that none of them is that of a later holder of the lease.
        """
        known = head.names | {self._head(head.version)}
        unknown = [name for name in names_in(self._folder) if name not in known and export_of(name) not in exports]
        if fence is not None:
            fence.check()
        for name in unknown:
            (self._folder / name).unlink(missing_ok=True)

    def _head(self, version: int) -> str:
        return f"{_HEAD}{version}{self._suffix}"

    def _heads(self) -> Iterator[int]:
        for name in names_in(self._folder):
            number = name.removeprefix(_HEAD).removesuffix(self._suffix)
            if name.startswith(_HEAD) and name.endswith(self._suffix) and number.isdigit():
                yield int(number)


def of_export(export: str, part: str) -> str:
    """The name of a file of an export of history."""
    return f"{_EXPORT}{export}-{part}"


def export_of(name: str) -> str | None:
    """The export that a file of this name belongs to; None if it is no such file."""
    return name.removeprefix(_EXPORT).partition("-")[0] if name.startswith(_EXPORT) else None


def files_of(state: AnyPath, bucket: int, run: str = FIRST) -> BucketFiles:
    """The files of the bucket of this number, as this run sees them."""
    return BucketFiles(state / str(bucket), run)


def remove(state: AnyPath, buckets: Iterable[int], fence: Fence | None = None) -> None:
    """Remove the state of these buckets. fence: as in `keep_only`."""
    for bucket in buckets:
        folder = state / str(bucket)
        if fence is None:
            remove_tree(folder)
            continue
        names = names_in(folder)
        fence.check()
        for name in names:
            (folder / name).unlink(missing_ok=True)


def last_run(last: AnyPath) -> str:
    """The id of the run whose heads count. last: the file that has it."""
    return last.read_text() if last.is_file() else FIRST


def begin(
    state: AnyPath,
    version: int | None,
    run: str,
    exports: Collection[str] = (),
    *,
    last: AnyPath | None = None,
    fence: Fence | None = None,
) -> None:
    """Start a new run from the committed state only. version: of the last committed batch, None if there was none.

    exports, fence: as in `keep_only`. last: the file with the id of the run whose heads count; None: in the folder.
    If it is interrupted, the next `begin` finds the same state.
    """
    state.mkdir(parents=True, exist_ok=True)
    last = last or state / RUN
    earlier = last_run(last)
    folders = [folder for folder in state.iterdir() if folder.is_dir()]
    committed = {folder: BucketFiles(folder, earlier).before((version or 0) + 1) for folder in folders}
    for folder, head in committed.items():
        if head.version != NOTHING:
            BucketFiles(folder, run).keep(head)
    write_whole(last, run.encode())
    for folder, head in committed.items():
        BucketFiles(folder, run).keep_only(head, exports, fence)
