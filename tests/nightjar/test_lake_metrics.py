"""What `nightjar metrics` shows of a lake, without a broker."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from nightjar.backfill.erasure.rows import purge
from nightjar.lake.maintenance import maintain
from nightjar.lake.tables import ARCHIVES, RUNS
from nightjar.metrics.lake import LakeMetrics
from tests.support.lakes import add, add_run, at, config_of

NIGHT = "nightjar_night_due_timestamp_seconds"


def metrics_of(root: Path) -> LakeMetrics:
    """Those of a lake where a day's run is due three hours after its end."""
    return LakeMetrics(root, lambda day: datetime(day.year, day.month, day.day, 3, tzinfo=UTC) + timedelta(days=1))


def shown(root: Path) -> dict[str, float]:
    """What one look finds."""
    return read(metrics_of(root))


def read(metrics: LakeMetrics) -> dict[str, float]:
    """What another look finds: name and labels to value."""
    metrics.read()
    samples = (sample for family in metrics.collect() for sample in family.samples)
    return {" ".join([each.name, *each.labels.values()]): each.value for each in samples}


def test_a_night_is_due_from_the_first_archive_on(tmp_path: Path) -> None:
    """Of the first archived day, then of the day after the last with a finished run; nothing is in an empty lake."""
    assert shown(tmp_path / "none") == {}
    config = config_of(tmp_path / "lake")
    assert NIGHT not in shown(config.lake.root)
    for day in (6, 5):
        add(config, ARCHIVES, [{"finished_at": at(day), "until": at(day), "rows": "{}"}])
    assert shown(config.lake.root)[NIGHT] == at(6, 3).timestamp()
    assert shown(config.lake.root)["nightjar_archive_until_timestamp_seconds"] == at(6).timestamp()
    add_run(config, date(2026, 1, 8), at(9), state="failed")
    assert shown(config.lake.root)[NIGHT] == at(6, 3).timestamp()
    add_run(config, date(2026, 1, 7), at(9))
    assert shown(config.lake.root)[NIGHT] == at(9, 3).timestamp()


def test_the_last_archive_is_shown_whichever_file_it_is_in(tmp_path: Path) -> None:
    """Its rows and seconds, of which a row of an earlier release has none."""
    config = config_of(tmp_path / "lake")
    for day, seconds in ((5, 4.0), (7, 2.5), (6, 9.0)):
        row = {"finished_at": at(day), "until": at(day), "rows": f'{{"alerts": {day}}}', "seconds": seconds}
        add(config, ARCHIVES, [row])
    found = shown(config.lake.root)
    assert (found["nightjar_archive_rows alerts"], found["nightjar_archive_seconds"]) == (7, 2.5)
    maintain(config.lake.root, ARCHIVES, first=None, unused=timedelta(0))
    assert shown(config.lake.root)["nightjar_archive_seconds"] == 2.5
    add(config, ARCHIVES, [{"finished_at": at(8), "until": at(8), "rows": "{}"}])
    assert "nightjar_archive_seconds" not in shown(config.lake.root)


def test_each_table_is_shown_with_its_files(tmp_path: Path) -> None:
    """Those of its newest version; what else is in the lake is no table. Commits that an erasure removed do no harm."""
    config = config_of(tmp_path / "lake")
    root = config.lake.root
    (root / "data_docs").mkdir()
    metrics = metrics_of(root)
    names = {"archives", "events_transactions", "reconciliation", "runs"}
    assert {name for name in read(metrics) if name.startswith("nightjar_lake_files")} == {
        f"nightjar_lake_files {name}" for name in names
    }
    for day in (5, 6):
        add_run(config, date(2026, 1, day), at(day + 1))
    sizes = [file.stat().st_size for file in (root / "runs").glob("*.parquet")]
    found = read(metrics)
    assert (found["nightjar_lake_files runs"], found["nightjar_lake_bytes runs"]) == (2, sum(sizes))
    add_run(config, date(2026, 1, 7), at(8))
    add_run(config, date(2026, 1, 8), at(9))
    purge(root, RUNS)
    read(metrics)
    assert read(metrics)["nightjar_lake_files runs"] == 4
