"""Metrics of the lake: how fresh the archive is, and what the last nights found."""

from __future__ import annotations

import calendar
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any

import structlog
from deltalake import DeltaTable
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from nightjar.contracts.run_manifest import RunManifest, RunState, read_manifest
from nightjar.lake import delta
from nightjar.lake.archive import ArchiveRuns, archive_runs
from nightjar.lake.scanning import scan
from nightjar.lake.tables import RUNS, Table
from nightjar.rules.timestamps import from_microseconds
from nightjar.storage.paths import AnyPath, names_in

_log = structlog.get_logger(__name__)

# Of the manifests' counts, those that are numbers, and what they count.
_COUNTS = {
    "published": "Corrections that the last finished night published.",
    "held_back": "Unexplained differences of the last finished night, whose alerts were held back.",
    "left_to_the_stream": "Differences that the last finished night left to the stream.",
    "overflow": "Alerts of the stream that the last finished night found marked overflow.",
}


class LakeMetrics:
    """Collects the metrics of a lake. `read` looks at its tables; what it found is shown until the next time."""

    def __init__(self, root: AnyPath, due: Callable[[date], datetime]) -> None:
        """due: when the run of a day is."""
        self._root, self._due = root, due
        self._lock = threading.Lock()
        self._found: list[Metric] = []
        self._held: dict[str, DeltaTable] = {}

    def read(self) -> None:
        """Look at the tables; what cannot be read is logged, and keeps its last values."""
        try:
            found = [*self._read()]
        except Exception as failure:  # noqa: BLE001  of deltalake and polars: any; metrics must go on
            _log.warning("the lake cannot be read", lake=str(self._root), reason=str(failure))
            self._held = {}  # an erasure removes commits that are to be read next
            return
        with self._lock:
            self._found = found

    def collect(self) -> Iterator[Metric]:
        """The metrics, for a scrape."""
        with self._lock:
            yield from self._found

    def _read(self) -> Iterator[Metric]:
        sizes = {name: delta.sizes(held) for name, held in self._newest().items()}
        yield _gauges(
            "nightjar_lake_files",
            "Files of a table's newest version.",
            "table",
            {name: len(each) for name, each in sizes.items()},
        )
        yield _gauges(
            "nightjar_lake_bytes", "Size of these files.", "table", {name: sum(each) for name, each in sizes.items()}
        )
        archives, runs = archive_runs(self._root), self._whole_runs()
        if archives is not None:
            yield from _of_archives(archives)
        if runs is not None:
            yield from _of_runs(runs)
        finished = [run for run in runs or () if run.state is RunState.FINISHED]
        last = max(finished, key=lambda run: (run.day, run.finished_at), default=None)
        if last is not None:
            yield from _of_night(last)
            following = last.day + timedelta(days=1)
        elif archives is not None:
            following = from_microseconds(archives.first).date()
        else:
            return
        about = "When the night after the last finished one is due; before any, that of the first archived day."
        yield _gauge("nightjar_night_due_timestamp_seconds", about, self._due(following).timestamp())

    def _newest(self) -> dict[str, DeltaTable]:
        """Each table by its name. They stay open, so that only commits since the last time are read."""
        for table in (Table(name, {}) for name in sorted(names_in(self._root))):
            if table.name in self._held:
                self._held[table.name].update_incremental()
            elif delta.exists(self._root, table):
                self._held[table.name] = delta.opened(self._root, table)
        return self._held

    def _whole_runs(self) -> list[RunManifest] | None:
        """The manifests of runs of whole days; None where there is no table of them."""
        if not delta.exists(self._root, RUNS):
            return None
        rows = scan(self._root, RUNS).collect().iter_rows(named=True)
        return [run for run in map(read_manifest, rows) if run is not None and not (run.only_rules or run.only_groups)]


def _of_archives(archives: ArchiveRuns) -> Iterator[Metric]:
    about = "All records that arrived before it are in the lake."
    yield _gauge("nightjar_archive_until_timestamp_seconds", about, archives.last.until / 1_000_000)
    yield _gauges(
        "nightjar_archive_rows", "Rows that the last archive has brought to the lake.", "table", archives.last.rows
    )
    if archives.last.seconds is not None:
        yield _gauge("nightjar_archive_seconds", "How long the last archive took.", archives.last.seconds)


def _of_runs(whole: Sequence[RunManifest]) -> Iterator[Metric]:
    runs = GaugeMetricFamily(
        "nightjar_night_runs", "Runs of whole days in the lake, by how they ended.", labels=["state"]
    )
    for state in RunState:
        runs.add_metric([state.value.replace(" ", "_")], sum(run.state is state for run in whole))
    yield runs
    if published := [run for run in whole if run.state is not RunState.DRY_RUN]:
        last = max(published, key=lambda run: run.finished_at)
        yield _gauge(
            "nightjar_night_last_run_failed", "Whether the newest run failed.", float(last.state is RunState.FAILED)
        )


def _of_night(run: RunManifest) -> Iterator[Metric]:
    """Of the last day that has a finished run."""
    yield _gauge(
        "nightjar_night_day_timestamp_seconds", "The last day (its beginning) with a finished run.", _utc(run.day)
    )
    yield _gauge("nightjar_night_finished_timestamp_seconds", "When that run finished.", run.finished_at / 1_000_000)
    for name, about in _COUNTS.items():
        yield _gauge(f"nightjar_night_{name}", about, _number(run.counts.get(name)))
    yield _gauges(
        "nightjar_night_alerts", "Alerts of the last finished night by outcome.", "outcome", run.counts.get("outcomes")
    )
    yield _gauges(
        "nightjar_night_differences",
        "Differences of the last finished night by cause.",
        "cause",
        run.counts.get("causes"),
    )
    yield _gauges(
        "nightjar_night_expectations",
        "Expectations of the last finished night that held or gave warnings.",
        "result",
        run.counts.get("expectations"),
    )
    yield _by_severity(run.counts.get("severities"))
    yield _gauges(
        "nightjar_night_stage_seconds", "How long each stage of the last finished night took.", "stage", run.seconds
    )


def _gauge(name: str, about: str, value: float) -> Metric:
    found = GaugeMetricFamily(name, about)
    found.add_metric([], value)
    return found


def _gauges(name: str, about: str, label: str, values: Any) -> Metric:
    found = GaugeMetricFamily(name, about, labels=[label])
    for key, value in _items(values):
        found.add_metric([key], _number(value))
    return found


def _by_severity(severities: Any) -> Metric:
    name, about = "nightjar_night_expectations_by_severity", "Expectations of the last finished night, held or broken."
    found = GaugeMetricFamily(name, about, labels=["severity", "result"])
    for severity, results in _items(severities):
        for result, count in _items(results):
            found.add_metric([severity, result], _number(count))
    return found


def _items(values: Any) -> Iterable[tuple[str, Any]]:
    """Of an object in a manifest; none where a release has written something else."""
    return values.items() if isinstance(values, Mapping) else ()


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _utc(day: date) -> float:
    return float(calendar.timegm(day.timetuple()))
