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

from backfill.config import DAY, BackfillConfig, BackfillError, Request
from backfill.histories import Published, histories
from backfill.scope import merged
from lake import delta
from lake.files import whole
from lake.reading import scan
from lake.tables import ALERTS, LATE_EVENTS, PROGRESS, RULES, RUNS, events_table
from rules.streams import Stream
from rules.timestamps import MIN_TIMESTAMP
from rules.versions import RuleSet, RuleVersion
from streaming.rulebook import Route, RuleBook, RuleMessage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
# Parquet: the violations of the event dates that publishing replaces.
REPLACEMENT = "replacement"
_NOTES, _PROGRESS = "run.json", "progress.json"


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


def staged_violations(session: SparkSession, folder: Path) -> DataFrame:
    """The violations that a run has found: the columns of VIOLATIONS without event_date."""
    return session.read.parquet(str(folder / EVALUATED)).where("failed IS NULL").drop("failed")


def judged_spans(folder: Path) -> list[tuple[int, int]]:
    """The event times (µs, both included) that a run judges in any group: some dozens of disjoint spans at most, in
    their order."""
    touched = pl.scan_parquet(folder / TOUCHED_GROUPS / "*.parquet")
    dates = touched.group_by(pl.col("lo").floordiv(DAY).alias("date")).agg(pl.col("lo").min(), pl.col("hi").max())
    return merged(dates.select("lo", "hi").collect(engine="streaming").rows())


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
        """When the stream came to know each version, and which history it had for it.

        A route that is no entity field begins without history when the job has made it.
        """
        book = RuleBook(config.streams, config.activation_delay)
        arrivals: dict[tuple[str, int], int] = {}
        begun: dict[Route, int] = {}
        for message in self._messages():
            before, waiting = len(book.ruleset.versions), book.waiting
            book.receive(message)
            for version in book.ruleset.versions[before:]:
                arrivals[version.rule.id, version.version] = message.arrival
            if waiting:
                for rule_id, number in set(waiting) - set(book.waiting):
                    rule = book.ruleset.of_rule(rule_id)[number - 1].rule
                    begun.setdefault(book.serving[rule.stream, rule.group_by], message.arrival)
        served: dict[Route, list[RuleVersion]] = defaultdict(list)
        for version in book.ruleset.versions:
            served[book.serving[version.rule.stream, version.rule.group_by]].append(version)
        found: dict[tuple[str, int], Published] = {}
        for route, versions in served.items():
            since = begun.get(route, MIN_TIMESTAMP)
            for name, known in histories(versions, arrivals, config.streams[route.stream].allowed_lateness).items():
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
    tables = [*map(events_table, config.streams.values()), ALERTS, LATE_EVENTS, RULES, PROGRESS, RUNS]
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
