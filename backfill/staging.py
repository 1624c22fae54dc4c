"""The staged folder of a run: its layout, for the next stage, the gate, and inspection of a failed run; and the inputs
that the run has pinned."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from nightjar.backfill.config import BackfillConfig, BackfillError
from nightjar.backfill.lateness import Allowed
from nightjar.lake import delta, stream_state
from nightjar.lake.archive import archived_until
from nightjar.lake.scanning import parquet
from nightjar.lake.tables import ALERTS, LATE_EVENTS, PROGRESS, RULE_STATUS, RUNS, TABLES, events_table
from nightjar.rules.streams import Stream, recorded_streams, tables_of
from nightjar.storage.objects import ObjectPath
from nightjar.storage.paths import AnyPath, access_of, matching, whole

# Parquet: the violations (and, with `failed`, the measures without a value), and the groups touched: a row for each
# span to judge, whose spans of one group do not overlap, with the bucket that it is evaluated in.
EVALUATED, TOUCHED_GROUPS = "violations", "touched"
# Data that the tasks of a running stage send to each other.
EXCHANGED = "exchanged"
# Parquet: alerts that earlier runs left to the stream; and, of buckets with differences, records about the alerts that
# are judged, and outcomes that differ.
PENDING, JUDGED, DIFFERING = "pending", "judged", "differing"
# Parquet: outcomes of alerts, the corrections to publish, those that are held back, and the ids of alerts that stand as
# they are, whatever this run has found (S15.4).
OUTCOMES, CORRECTED, HELD_BACK, UNCHANGED = "outcomes", "corrections", "held_back", "standing"
# By table, Parquet: what publishing puts into its folders.
REPLACEMENT = "replacement"
_NOTES, _PROGRESS, _JUDGED_TIMES = "run.json", "progress.json", "judged.json"


def groups_folder(folder: AnyPath, stream: Stream, number: int) -> AnyPath:
    """The touched groups of a stream's group-by of this number, as Parquet (see scope.touched_groups), with BUCKET."""
    return folder / "groups" / f"{stream.name}-{number}"


def repeated_folder(folder: AnyPath, stream: Stream) -> AnyPath:
    """The records whose event id is repeated, as Parquet (see survey.repeated)."""
    return folder / "repeated" / stream.name


def stage(rows: pa.Table, file: AnyPath) -> None:
    """Write Parquet atomically, even if several attempts at a task write at once."""
    with whole(file) as partial:
        pq.write_table(rows, partial)


def staged_files(folder: AnyPath) -> list[delta.File]:
    """The files in a folder that have rows, in the order of their names."""
    files = (delta.File(str(f), _row_count(f), access_of(f)) for f in matching(folder, "*.parquet"))
    return [file for file in files if file.rows]


def _row_count(file: AnyPath) -> int:
    if isinstance(file, ObjectPath):
        return int(parquet(file).select(pl.len()).collect().item())
    return int(pq.read_metadata(file).num_rows)


@dataclass(frozen=True)
class Notes:
    """Shared by the stages of a run."""

    cut: int
    """Arrivals before it (µs) count."""
    started_at: int
    versions: dict[str, int]
    """Of the Delta tables as read."""
    answers: list[tuple[int, int, str]]
    """Offset, arrival (µs) and JSON of each record of the `rule-status` topic."""
    allowed: Mapping[str, Allowed] = field(default_factory=dict)
    """By stream how late events could be about the run's days; of others it is as declared."""
    until: int | None = None
    """How far the archive has come (µs); None if that is unknown."""

    @property
    def clock(self) -> int:
        """The time before which all that counts has arrived, µs."""
        return self.cut if self.until is None else min(self.cut, self.until)

    def allowed_of(self, stream: Stream) -> Allowed:
        """How late events of the stream could be."""
        return self.allowed.get(stream.name, Allowed(stream.allowed_lateness, stream.allowed_lateness))


def take_notes(
    config: BackfillConfig, cut: int, started_at: int, allowed: Mapping[str, Allowed] = MappingProxyType({})
) -> Notes:
    """Pin the inputs of a run. allowed: see Notes."""
    root = config.lake.root
    tables = [
        *map(events_table, recorded_streams(config.streams.values())),
        ALERTS,
        LATE_EVENTS,
        RULE_STATUS,
        PROGRESS,
        RUNS,
    ]
    if tables_of(config.streams) and delta.exists(root, TABLES):  # the archive makes it where the first is declared
        tables.append(TABLES)
    versions = {table.name: delta.version(root, table) for table in tables}
    answers = stream_state.answers(root, versions[RULE_STATUS.name])
    written = [(each.offset, each.arrival, each.value.decode()) for each in answers]
    return Notes(cut, started_at, versions, written, dict(allowed), archived_until(root))


def write_notes(folder: AnyPath, notes: Notes) -> None:
    """Write the notes for the next stages."""
    _write(folder / _NOTES, notes)


def read_notes(folder: AnyPath) -> Notes:
    """The notes of an earlier stage.

    Raises:
        BackfillError: there are none.
    """
    try:
        written = json.loads((folder / _NOTES).read_text())
    except OSError:
        raise BackfillError(
            "the run has not been evaluated", where=str(folder), remedy="Run its evaluate stage first"
        ) from None
    answers = [(offset, arrival, value) for offset, arrival, value in written.pop("answers")]
    allowed = {stream: Allowed(**of) for stream, of in written.pop("allowed", {}).items()}
    return Notes(**written, answers=answers, allowed=allowed)


def write_judged_times(folder: AnyPath, judged: Mapping[str, Sequence[tuple[int, int]]]) -> None:
    """Leave the event times (µs, both included) that the run judges, by stream, for the stages after the first."""
    with whole(folder / _JUDGED_TIMES) as partial:
        partial.write_text(json.dumps(judged))


def read_judged_times(folder: AnyPath) -> dict[str, list[tuple[int, int]]]:
    """What `write_judged_times` has left."""
    written = json.loads((folder / _JUDGED_TIMES).read_text())
    return {stream: [(lo, hi) for lo, hi in spans] for stream, spans in written.items()}


@dataclass(frozen=True)
class Progress:
    """What the stages that are done have counted, and the seconds each took; in the staged folder between them."""

    counts: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: AnyPath) -> Progress:
        """The counts so far."""
        file = folder / _PROGRESS
        return cls(**json.loads(file.read_text())) if file.exists() else cls()

    def after(self, stage: str, counts: dict[str, Any], seconds: float) -> Progress:
        """Add a stage."""
        return Progress({**self.counts, **counts}, {**self.seconds, stage: seconds})

    def write(self, folder: AnyPath) -> None:
        """Write it for the next stage."""
        _write(folder / _PROGRESS, self)


def _write(file: AnyPath, content: Notes | Progress) -> None:
    with whole(file) as partial:
        partial.write_text(json.dumps(asdict(content)))
