"""The staged folders of runs that name a person (S15)."""

from __future__ import annotations

import polars as pl
from polars import selectors

from nightjar.backfill.config import BackfillConfig, staging_folder
from nightjar.backfill.erasure.person import Person
from nightjar.storage.paths import AnyPath, local_copy, matching, remove_tree


def remove_naming(config: BackfillConfig, person: Person, ids: frozenset[str], *, dry_run: bool) -> tuple[str, ...]:
    """Remove the staged folders that name the person, or one of these events; returns their names.

    A run that has not ended must be repeated from its evaluate stage on.
    """
    place = staging_folder(config.lake)
    folders = matching(place, "*") if place.is_dir() else []
    found = [folder for folder in folders if any(_names(file, person, ids) for file in folder.rglob("*"))]
    for folder in found if not dry_run else ():
        remove_tree(folder)
    return tuple(folder.name for folder in found)


def _names(file: AnyPath, person: Person, ids: frozenset[str]) -> bool:
    if not file.is_file():
        return False
    with local_copy(file) as local:
        if file.suffix == ".parquet":
            return _has(pl.read_parquet(local), person, ids)
        if file.suffix == ".arrow":
            return _has(pl.read_ipc(local), person, ids)
        return person.named_in(local.read_text(errors="replace"))


def _has(rows: pl.DataFrame, person: Person, ids: frozenset[str]) -> bool:
    texts = rows.select(selectors.string())
    for name in texts.columns:
        values = texts.get_column(name).drop_nulls().unique()
        if values.is_in(ids).any() or any(person.named_in(value) for value in values):
            return True
    return False
