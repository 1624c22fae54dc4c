"""Remove the staged folders of finished runs after a while.

How it works: the folder of a finished run (or a dry run) is removed once it is older than the setting
`staging_retention`. That of a failed run is kept for inspection until a later run of the same day has finished, and is
then removed by age. A folder without a manifest, as its process was killed, is removed by age alone.
"""

from __future__ import annotations

import polars as pl
import structlog

from nightjar.backfill.config import BackfillConfig, staging_folder
from nightjar.contracts.run_manifest import RunState
from nightjar.lake.scanning import scan
from nightjar.lake.tables import RUNS
from nightjar.rules.timestamps import microseconds
from nightjar.storage.objects import ObjectPath
from nightjar.storage.paths import AnyPath, matching, remove_tree

_log = structlog.get_logger(__name__)

_ENDED = (RunState.FINISHED.value, RunState.DRY_RUN.value)


def remove_old_staging(config: BackfillConfig, run_id: str, now: int) -> list[str]:
    """Remove expired folders, but never that of `run_id`; returns their names. now: µs."""
    place, oldest = staging_folder(config.lake), now - config.staging_retention
    old = [each for each in matching(place, "*") if each.name != run_id and _changed(each) < oldest]
    if not old:
        return []
    runs = scan(config.lake.root, RUNS).select("run_id", "day", "state", "finished_at").collect()
    last = runs.sort("finished_at").unique("run_id", keep="last", maintain_order=True)
    finished = runs.filter(pl.col("state") == RunState.FINISHED.value).group_by("day").agg(pl.col("finished_at").max())
    superseded = last.join(finished.rename({"finished_at": "since"}), on="day", how="left")
    needed = superseded.filter(
        ~pl.col("state").is_in(_ENDED) & (pl.col("since").is_null() | (pl.col("since") <= pl.col("finished_at")))
    )
    kept = set(needed.get_column("run_id"))
    gone = [each for each in old if each.name not in kept]
    for folder in gone:
        remove_tree(folder)
    if gone:
        _log.info("staged folders of earlier runs were removed", folders=len(gone))
    return [folder.name for folder in gone]


def _changed(folder: AnyPath) -> int:
    """When the last file was added to the folder itself or one of its files was replaced, µs."""
    if isinstance(folder, ObjectPath):
        changed = folder.changed_at()
        return 0 if changed is None else microseconds(changed)
    return folder.stat().st_mtime_ns // 1000
