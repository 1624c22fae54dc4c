"""The part of a checkpoint that a job rewrites: its metadata, Spark's logs, and the id of its run.

On a file system it is the checkpoint's folder itself; a lock keeps others out. In an object store every holder of the
lease has a folder of its own, named after its epoch: what an earlier holder still writes, in its own, is never read. A
new holder begins with a copy of its predecessor's.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from nightjar.storage.lease import Fence
from nightjar.storage.objects import ObjectPath
from nightjar.storage.paths import AnyPath, remove_tree

# nightjar's metadata; it is copied last, so a folder without it is an interrupted copy.
METADATA = "nightjar.json"
# Spark's logs.
QUERY = "query"
# Of Spark's logs, those with a file for each batch.
_LOGS = ("commits", "offsets")
# A restart needs the last batch that was begun and the one before it.
_KEPT = 2
_COPIES_AT_ONCE = 8


def own_folder(checkpoint: AnyPath, fence: Fence | None) -> AnyPath:
    """The folder that counts: that of the lease's holder, or of the last one if this process does not hold it."""
    if not isinstance(checkpoint, ObjectPath):
        return checkpoint
    if fence is not None:
        return checkpoint / fence.name
    return max(_epochs(checkpoint), key=lambda each: each.name, default=checkpoint)


def take_over(checkpoint: AnyPath, fence: Fence | None) -> None:
    """Begin where the holder before this one has ended; to be called once, before anything is read.

    What that one still begins cannot count: its tasks check the fence once Spark has logged their batch, so a batch
    that they work on was logged before this copy was made.
    """
    if not isinstance(checkpoint, ObjectPath) or fence is None:
        return
    earlier = [each for each in _epochs(checkpoint) if each.name < fence.name]
    if earlier:
        _copy(max(earlier, key=lambda each: each.name), checkpoint / fence.name)
        fence.check()
    for each in earlier:
        remove_tree(each)


def _epochs(checkpoint: ObjectPath) -> list[ObjectPath]:
    """The folders of holders that have completed them."""
    numbered = [each for each in checkpoint.iterdir() if each.name.isdigit()]
    return [each for each in numbered if (each / METADATA).is_file()]


def _copy(source: ObjectPath, target: ObjectPath) -> None:
    def copied(name: str) -> None:
        (target / name).write_bytes((source / name).read_bytes())

    with ThreadPoolExecutor(_COPIES_AT_ONCE) as pool:
        list(pool.map(copied, list(_names(source))))
    copied(METADATA)


def _names(source: ObjectPath) -> Iterator[str]:
    """The objects of the folder that count, except the metadata.

    Listed in order, so that a commit which is found has its offsets, which were logged before it.
    """
    logged: dict[str, list[int]] = {}
    for name in (each.relative_to(source) for each in source.rglob("*")):
        folder, _, number = name.rpartition("/")
        if folder.rpartition("/")[2] in _LOGS:
            logged.setdefault(folder, []).extend([int(number)] if number.isdigit() else [])
        elif name != METADATA:
            yield name
    for folder, numbers in logged.items():
        yield from (f"{folder}/{number}" for number in sorted(numbers)[-_KEPT:])
