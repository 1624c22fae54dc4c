"""What becomes of the staged folders of earlier runs."""

import os
from datetime import date, datetime
from pathlib import Path

from nightjar.backfill.config import BackfillConfig, staging_folder
from nightjar.backfill.upkeep.cleaning import remove_old_staging
from nightjar.rules.timestamps import microseconds
from tests.support.lakes import add_run, at, config_of

TODAY = at(20)


def staged(config: BackfillConfig, run_id: str, changed: datetime) -> None:
    """A run's folder, last written to at that time."""
    folder = staging_folder(config.lake) / run_id
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    os.utime(folder, (changed.timestamp(), changed.timestamp()))


def left(config: BackfillConfig, own: str = "own") -> set[str]:
    """The folders that are still there after cleaning on the 20th."""
    remove_old_staging(config, own, microseconds(TODAY))
    return {folder.name for folder in staging_folder(config.lake).iterdir()}


def test_folders_of_finished_runs_go_after_a_week(tmp_path: Path) -> None:
    """The run's own folder never does; a dry run is finished too, and so is one whose process nobody knows."""
    config = config_of(tmp_path)
    for run_id, state, ended in (("old", "finished", at(12)), ("dry", "dry run", at(12)), ("new", "finished", at(14))):
        staged(config, run_id, ended)
        add_run(config, date(2026, 1, 11), ended, run_id=run_id, state=state)
    staged(config, "killed", at(12))
    staged(config, "own", at(1))
    assert left(config) == {"new", "own"}


def test_folders_of_failed_runs_stay_until_their_day_has_been_put_right(tmp_path: Path) -> None:
    """By a run that finished after them; and then for as long as others."""
    config = config_of(tmp_path)
    for run_id in ("failed", "failed-then-finished", "finished-then-failed"):
        staged(config, run_id, at(3))
    add_run(config, date(2026, 1, 1), at(3), run_id="failed", state="failed")
    add_run(config, date(2026, 1, 1), at(2), state="finished")
    add_run(config, date(2026, 1, 2), at(3), run_id="failed-then-finished", state="failed")
    add_run(config, date(2026, 1, 2), at(4), run_id="failed-then-finished")
    add_run(config, date(2026, 1, 3), at(3), run_id="finished-then-failed")
    add_run(config, date(2026, 1, 3), at(4), run_id="finished-then-failed", state="failed")
    assert left(config) == {"failed", "finished-then-failed"}
    add_run(config, date(2026, 1, 1), at(5))
    assert left(config) == {"finished-then-failed"}
    longer = config_of(tmp_path / "longer", staging_retention=30 * 86_400_000_000)
    staged(longer, "old", at(3))
    add_run(longer, date(2026, 1, 1), at(3), run_id="old")
    assert left(longer) == {"old"}
