"""Writes files atomically, so that others can read or write them at the same time."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(file: Path) -> Iterator[Path]:
    """Yield a temporary path to write to, and rename it to `file` at the end: the file is complete or absent."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{uuid.uuid4().hex}")  # process ids repeat on other machines
    yield partial
    partial.replace(file)
