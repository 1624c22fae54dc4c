"""Finds a quote in a CSV file that is never closed, which Arrow's reader would take for the rest of the file."""

import csv
import mmap
from pathlib import Path


def open_quote(path: Path) -> tuple[int, str] | None:
    """The line, from 1, of the first record whose quotes are wrong, and what is wrong; None if all are right."""
    with path.open("rb") as file:
        if not file.seek(0, 2):
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content.find(b'"') < 0:
                return None
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        records = csv.reader(lines, strict=True)
        begins = 1
        try:
            for _ in records:
                begins = records.line_num + 1
        except csv.Error as failure:
            if "field larger" in str(failure):
                return begins, f"has a value of more than {csv.field_size_limit():,} characters: is its quote closed?"
            return begins, "has a quote that is not closed, or is followed by more than a comma"
    return None
