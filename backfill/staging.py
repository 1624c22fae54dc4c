"""What a run leaves in its staged folder, for its next stage, for the gate, and for whoever looks into a failed run."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from backfill.config import DAY, BackfillConfig, BackfillError, Request
from backfill.histories import Published, histories
from backfill.scope import merged
from lake import delta, stream_state
from lake.atomic_write import whole
from lake.tables import ALERTS, LATE_EVENTS, PROGRESS, RULE_STATUS, RUNS, events_table
from rules.publishing import Answer
from rules.rulebook import Record, Route, RuleBook
from rules.streams import Stream
from rules.timestamps import MIN_TIMESTAMP
from rules.versions import RuleSet, RuleVersion

# Parquet: the violations (and, with `failed`, the measures without a value), and the groups touched: a row for each
# span to judge, whose spans of one group do not overlap, with the bucket that it is evaluated in.
EVALUATED, TOUCHED_GROUPS = "violations", "touched"
# What the tasks of a stage send to each other, while it runs.
EXCHANGED = "exchanged"
# Parquet: alerts that earlier runs left to the stream; and, of buckets with differences, records about the alerts that
# are judged, and outcomes that differ.
PENDING, JUDGED, DIFFERING = "pending", "judged", "differing"
# Parquet: outcomes of alerts, the corrections to publish, and those that are held back.
OUTCOMES, CORRECTED, HELD_BACK = "outcomes", "corrections", "held_back"
# By table, Parquet: what publishing puts into its folders.
REPLACEMENT = "replacement"
_NOTES, _PROGRESS = "run.json", "progress.json"


# A task that compares rows holds them: some hundred megabytes at most.
_ROWS_A_HEAP = 1_000_000


class Files(Protocol):
    """Files that one task reads."""

    @property
    def files(self) -> Sequence[delta.File]:
        """They."""


def groups_folder(folder: Path, stream: Stream, number: int) -> Path:
    """The touched groups of a stream's group-by of this number, as Parquet (see scope.touched_groups), with BUCKET."""
    return folder / "groups" / f"{stream.name}-{number}"


def repeated_folder(folder: Path, stream: Stream) -> Path:
    """The records whose event id is repeated, as Parquet (see survey.repeated)."""
    return folder / "repeated" / stream.name


def stage(rows: pa.Table, file: Path) -> None:
    """Write Parquet, whole or not at all, whoever else tries the same task."""
    with whole(file) as partial:
        pq.write_table(rows, partial)


def staged_files(folder: Path) -> list[delta.File]:
    """The files in a folder that have rows, in the order of their names."""
    files = (delta.File(str(file), pq.read_metadata(file).num_rows) for file in sorted(folder.glob("*.parquet")))
    return [file for file in files if file.rows]


def heaps_of(parts: Iterable[Files], parallelism: int) -> int:
    """Into how many tasks the rows of some files are divided to be compared."""
    rows = sum(file.rows for part in parts for file in part.files)
    return max(parallelism, math.ceil(rows / _ROWS_A_HEAP))


def staged_violations(folder: Path) -> int:
    """How many violations a run has found."""
    found = pl.scan_parquet(folder / EVALUATED / "*.parquet").filter(pl.col("failed").is_null())
    return int(found.select(pl.len()).collect(engine="streaming").item())


def judged_spans(folder: Path) -> list[tuple[int, int]]:
    """The event times (µs, both included) that a run judges in any group: some dozens of disjoint spans at most, in
    their order."""
    touched = pl.scan_parquet(folder / TOUCHED_GROUPS / "*.parquet")
    dates = touched.group_by(pl.col("lo").floordiv(DAY).alias("date")).agg(pl.col("lo").min(), pl.col("hi").max())
    return merged(dates.select("lo", "hi").collect(engine="streaming").rows())


@dataclass(frozen=True)
class Notes:
    """What the stages of one run share. cut: arrivals before it (µs) count; versions: of the Delta tables as read.

    answers: (offset, arrival in µs, JSON) of the `rule-status` topic.
    """

    cut: int
    started_at: int
    versions: dict[str, int]
    answers: list[tuple[int, int, str]]

    def rule_book(self, config: BackfillConfig) -> RuleBook:
        """The rules as the stream's job has them: from the answers to rule messages."""
        book = RuleBook(config.streams)
        for answer in self._answers():
            book.receive(answer)
        return book

    def _answers(self) -> Iterator[Record]:
        for offset, arrival, value in self.answers:
            yield Record(offset, arrival, value.encode())

    def published(self, config: BackfillConfig) -> dict[tuple[str, int], Published]:
        """When the stream came to know each version, and which history it had for it.

        A route that is no entity field begins without history when the job has made it.
        """
        book = RuleBook(config.streams)
        begun: dict[Route, int] = {}
        for record in self._answers():
            said = book.receive(record)
            if said is not None and said.answer is Answer.ACTIVE:
                rule = book.of_rule(str(said.rule_id))[int(said.rule_version or 0) - 1].rule
                begun.setdefault(book.serving[rule.stream, rule.group_by], record.arrival)
        served: dict[Route, list[RuleVersion]] = defaultdict(list)
        for version in book.ruleset.versions:
            if version.rule.stream in config.streams:
                served[book.serving[version.rule.stream, version.rule.group_by]].append(version)
        found: dict[tuple[str, int], Published] = {}
        for route, versions in served.items():
            since, lateness = begun.get(route, MIN_TIMESTAMP), config.streams[route.stream].allowed_lateness
            for name, known in histories(versions, book.answered, lateness).items():
                found[name] = Published(known.arrival, max(known.history_since, since))
        return found

    def ruleset(self, config: BackfillConfig, request: Request) -> RuleSet:
        """The versions of the rules that the run is about.

        Raises:
            BackfillError: a rule that was asked for was never published.
        """
        versions = self.rule_book(config).ruleset.versions
        known = {version.rule.id for version in versions}
        if unknown := sorted(set(request.rules) - known):
            from rules.names import did_you_mean

            raise BackfillError(
                "was never published", where=f"rule {unknown[0]}", remedy=did_you_mean(unknown[0], known, "Rules are")
            )
        return RuleSet(tuple(v for v in versions if not request.rules or v.rule.id in request.rules))


def take_notes(config: BackfillConfig, cut: int, started_at: int) -> Notes:
    """Pin what a run reads."""
    root = config.lake.root
    tables = [*map(events_table, config.streams.values()), ALERTS, LATE_EVENTS, RULE_STATUS, PROGRESS, RUNS]
    versions = {table.name: delta.version(root, table) for table in tables}
    answers = stream_state.answers(root, versions[RULE_STATUS.name])
    return Notes(cut, started_at, versions, [(each.offset, each.arrival, each.value.decode()) for each in answers])


def write_notes(folder: Path, notes: Notes) -> None:
    """Leave the notes for the next stage."""
    _write(folder / _NOTES, notes)


def read_notes(folder: Path) -> Notes:
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
    return Notes(**written, answers=answers)


@dataclass(frozen=True)
class Progress:
    """What the stages that are done have counted, and the seconds each took; in the staged folder between them."""

    counts: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path) -> Progress:
        """What is known so far."""
        file = folder / _PROGRESS
        return cls(**json.loads(file.read_text())) if file.exists() else cls()

    def after(self, stage: str, counts: dict[str, Any], seconds: float) -> Progress:
        """One stage more."""
        return Progress({**self.counts, **counts}, {**self.seconds, stage: seconds})

    def write(self, folder: Path) -> None:
        """Leave it for the next stage."""
        _write(folder / _PROGRESS, self)


def _write(file: Path, content: Notes | Progress) -> None:
    with whole(file) as partial:
        partial.write_text(json.dumps(asdict(content)))
