"""What a run leaves in its staged folder, for its next stage, for the gate, and for whoever looks into a failed run."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from backfill.causes import Published
from backfill.config import BackfillConfig, BackfillError, Request
from lake import delta
from lake.files import whole
from lake.reading import scan
from lake.tables import ALERTS, PROGRESS, RULES, RUNS, events_table
from rules.streams import Stream
from rules.timestamps import MIN_TIMESTAMP
from rules.versions import RuleSet
from streaming.rulebook import Route, RuleBook, RuleMessage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Parquet: the violations (and, with `failed`, the measures without a value), and the groups touched.
EVALUATED, TOUCHED_GROUPS = "violations", "touched"
# What the tasks of a stage send to each other, while it runs.
EXCHANGED = "exchanged"
# Parquet: outcomes of alerts, the corrections to publish, and those that are held back (see HeldBack).
OUTCOMES, CORRECTED, HELD_BACK = "outcomes", "corrections", "held_back"
# Parquet: the violations of the event dates that publishing replaces.
REPLACEMENT = "replacement"
_NOTES, _PROGRESS = "run.json", "progress.json"


def groups_folder(folder: Path, stream: Stream, number: int) -> Path:
    """The touched groups of a stream's group-by of this number, as Parquet (see scope.touched_groups)."""
    return folder / "groups" / f"{stream.name}-{number}"


def repeated_folder(folder: Path, stream: Stream) -> Path:
    """The records that are not the first of their event id, as Parquet (see survey.repeated)."""
    return folder / "repeated" / stream.name


def stage(rows: pa.Table, file: Path) -> None:
    """Write Parquet, whole or not at all, whoever else tries the same task."""
    with whole(file) as partial:
        pq.write_table(rows, partial)


def staged_violations(session: SparkSession, folder: Path) -> DataFrame:
    """The violations that a run has found: the columns of VIOLATIONS without event_date."""
    return session.read.parquet(str(folder / EVALUATED)).where("failed IS NULL").drop("failed")


def touched_span(folder: Path) -> tuple[int, int] | None:
    """From the least to the greatest event time (µs) that a run judges; None where it touches nothing."""
    touched = pl.scan_parquet(folder / TOUCHED_GROUPS / "*.parquet")
    lo, hi = touched.select(pl.col("lo").min(), pl.col("hi").max()).collect().row(0)
    return None if lo is None else (lo, hi)


@dataclass(frozen=True)
class Notes:
    """What the stages of one run share. cut: arrivals before it (µs) count; versions: of the Delta tables as read.

    rule_messages: (offset, arrival in µs, bytes as text) of the rules topic.
    """

    cut: int
    started_at: int
    versions: dict[str, int]
    rule_messages: list[tuple[int, int, str]]

    def rule_book(self, config: BackfillConfig) -> RuleBook:
        """The rules as the stream's job has them: from the messages of the rules topic."""
        book = RuleBook(config.streams, config.activation_delay)
        for message in self._messages():
            book.receive(message)
        return book

    def _messages(self) -> Iterator[RuleMessage]:
        for offset, arrival, value in self.rule_messages:
            yield RuleMessage(offset, arrival, value.encode("utf-8", "surrogateescape"))

    def published(self, config: BackfillConfig) -> dict[tuple[str, int], Published]:
        """When each version was published, and from when on the stream has all of its history.

        A route that is no entity field begins when the job has made it; and of a route that was there, the job has let
        go what no earlier rule could need.
        """
        book = RuleBook(config.streams, config.activation_delay)
        found: dict[tuple[str, int], Published] = {}
        reach: dict[Route, int] = defaultdict(int)
        begun: dict[Route, int] = {}
        for message in self._messages():
            arrival = message.arrival
            before = len(book.ruleset.versions)
            waiting = set(book.waiting)
            book.receive(message)
            for version in book.ruleset.versions[before:]:
                rule = version.rule
                route = book.serving[rule.stream, rule.group_by]
                widest = max((measure.over for measure in rule.measures.values()), default=0)
                known_since = arrival - config.streams[rule.stream].allowed_lateness - reach[route]
                # what the rule can look back at without missing anything, and what it could only if nothing was let go
                since = known_since if widest > reach[route] else MIN_TIMESTAMP
                found[rule.id, version.version] = Published(arrival, max(since, begun.get(route, MIN_TIMESTAMP)))
                reach[route] = max(reach[route], widest)
            for rule_id, number in waiting - set(book.waiting):
                rule = book.ruleset.of_rule(rule_id)[number - 1].rule
                begun.setdefault(book.serving[rule.stream, rule.group_by], arrival)
                found[rule_id, number] = Published(found[rule_id, number].arrival, arrival)
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
    tables = [*map(events_table, config.streams.values()), ALERTS, RULES, PROGRESS, RUNS]
    versions = {table.name: delta.version(root, table) for table in tables}
    rows = scan(root, RULES, versions[RULES.name]).sort("offset")
    read = rows.select("offset", pl.col("arrival_time").dt.epoch("us"), "value").collect()
    messages = [
        (offset, arrival, (value or b"").decode("utf-8", "surrogateescape"))
        for offset, arrival, value in read.iter_rows()
    ]
    return Notes(cut, started_at, versions, messages)


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
    messages = [(offset, arrival, value) for offset, arrival, value in written.pop("rule_messages")]
    return Notes(**written, rule_messages=messages)


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
