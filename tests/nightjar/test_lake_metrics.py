"""What `nightjar metrics` shows of a lake, without a broker."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from lake.tables import ARCHIVES
from nightjar.metrics.lake import LakeMetrics
from tests.support.lakes import add, add_run, at, config_of

NIGHT = "nightjar_night_due_timestamp_seconds"


def shown(root: Path) -> dict[str, float]:
    """Name and labels to value; a day's run is due three hours after its end."""
    metrics = LakeMetrics(root, lambda day: datetime(day.year, day.month, day.day, 3, tzinfo=UTC) + timedelta(days=1))
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
