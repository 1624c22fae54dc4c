"""Files that others may read, or write too, while they are written."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(file: Path) -> Iterator[Path]:
    """Where to write the file, which then takes its place at once: it is there whole, or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{uuid.uuid4().hex}")  # process ids repeat on other machines
    yield partial
    partial.replace(file)
