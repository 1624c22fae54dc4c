"""The bucket of a value, and the integer that represents a bucket in Spark's shuffle."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nightjar.rules.engine.compiled import kernel
from nightjar.rules.engine.kernels.texts import hash_bytes
from nightjar.rules.rulebook import WHOLE_STREAM, ShuffleKey

_NOTHING = np.zeros(1, np.uint8)
_KEYS_APART = 1 << 16  # more buckets than anybody has


@kernel
def _numbers(offsets, data, valid, buckets, out):  # type: ignore[no-untyped-def]
    for i in range(len(out)):
        if len(valid) and not valid[i]:
            out[i] = 0
        else:
            out[i] = hash_bytes(data, offsets[i], offsets[i + 1]) % np.uint64(buckets)


def bucket_numbers(values: pa.Array, buckets: int) -> npt.NDArray[np.int64]:
    """The bucket, 0 to buckets - 1, of each value, by a hash of its text; NULL belongs to bucket 0.

    Must never change for a live checkpoint: its state is stored by these numbers.
    """
    texts = _texts(values)
    # Copies: Numba dispatches many times more slowly on Arrow's read-only arrays.
    offsets = np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, texts.offset * 4).copy()
    heap = texts.buffers()[2]
    data = np.frombuffer(heap, np.uint8).copy() if heap is not None and heap.size else _NOTHING
    valid = texts.is_valid().to_numpy(zero_copy_only=False) if texts.null_count else np.empty(0, np.bool_)
    out = np.empty(len(texts), np.int64)
    _numbers(offsets, data, valid, buckets, out)
    return out


def _texts(values: pa.Array) -> pa.Array:
    if pa.types.is_string(values.type):
        return values
    if pa.types.is_floating(values.type):  # their text may change with a library's version, their bits do not
        bits = (values.fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0).view(np.int64)
        values = pa.array(bits, mask=values.is_null().to_numpy(zero_copy_only=False))
    elif pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    return values.cast(pa.string())


def buckets_of(number: int, key: ShuffleKey, buckets: int) -> range:
    """The buckets of the shuffle key with this number; all events of the whole-stream shuffle key are in its first."""
    first = number * buckets
    return range(first, first + (1 if key.field == WHOLE_STREAM else buckets))


def divided(batch: pa.RecordBatch, values: pa.Array | None, buckets: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """(index among a shuffle key's buckets, the rows of that bucket in order).

    values: of the shuffle key's field, one per row; None: the whole-stream shuffle key.
    """
    if values is None or buckets == 1:
        if batch.num_rows:
            yield 0, batch
        return
    numbers = bucket_numbers(values, buckets)
    order = np.argsort(numbers, kind="stable")
    in_order = numbers[order]
    ordered = batch.take(pa.array(order))
    starts = np.flatnonzero(np.diff(in_order, prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(numbers)], strict=True):
        yield int(in_order[start]), ordered.slice(start, end - start)


def partition_key(bucket: int, partitions: int) -> int:
    """An int for the bucket that Spark's hash partitioning sends to partition `bucket % partitions`.

    Otherwise a few buckets would be spread unevenly over the partitions for the checkpoint's whole life.
    """
    key = bucket
    while _spark_hash(key) % partitions != bucket % partitions:
        key += _KEYS_APART
    return key


def bucket_of(key: int) -> int:
    """The bucket of a shuffle key."""
    return key % _KEYS_APART


def _spark_hash(value: int) -> int:
    """Spark's hash of an int column: MurmurHash3 x86 32 with seed 42, as a signed number."""
    k = _rotl(value * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF
    h = (_rotl(42 ^ k, 13) * 5 + 0xE6546B64 & 0xFFFFFFFF) ^ 4
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


def _rotl(value: int, by: int) -> int:
    return (value << by | value >> 32 - by) & 0xFFFFFFFF
