"""The stage that compares the stream's latest revisions with the truth, finds causes, and stages corrections.

How it works: in Spark tasks, by the buckets of the evaluation. First the records about alerts go to the bucket of their
group, where the truth is, and become outcomes. Then the events of the groups with differences follow, from which the
causes are found (see causes.py). The driver counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import structlog

from nightjar.backfill.config import BackfillConfig, Request
from nightjar.backfill.division import shares
from nightjar.backfill.evaluate.survey import CONFLICTS, judged_spans
from nightjar.backfill.inputs.event_selection import PLACE, Portion, Reading, groupings, portions, readings_of
from nightjar.backfill.inputs.forgotten import Forgotten
from nightjar.backfill.inputs.histories import Published
from nightjar.backfill.inputs.published_rules import PublishedRules
from nightjar.backfill.inputs.scope import BUCKET, GROUP, TARGET, events_of, group_by_name, in_spans, within
from nightjar.backfill.reconcile.buckets import Buckets, Count
from nightjar.backfill.reconcile.causes import Witness
from nightjar.backfill.reconcile.reconciliation import by_verdict
from nightjar.backfill.staging import EXCHANGED, Notes, groups_folder, read_judged_times, repeated_folder
from nightjar.contracts.alerts import RECORD_SCHEMA
from nightjar.lake import delta, stream_state
from nightjar.lake.arrow_shuffle import OverParts, exchange
from nightjar.lake.events import as_declared
from nightjar.lake.scanning import parquet, scan_files
from nightjar.lake.tables import ALERTS, LATE_EVENTS, PROGRESS
from nightjar.rules.engine.store import LATE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = structlog.get_logger(__name__)

_COUNTED = pa.schema([("what", pa.string()), ("name", pa.string()), ("found", pa.int64())])


@dataclass(frozen=True)
class Compared:
    """outcomes and causes: how many alerts; stream_alerts: alerts of the stream in scope that are not retracted;
    overflow: those of them that are marked so;
    corrections: how many are staged; waiting: differences left to the stream, which has not read their events yet;
    held_back: unexplained differences; unusable: records of the alerts topic that are not alerts."""

    outcomes: Counter[str]
    causes: Counter[str]
    stream_alerts: int
    overflow: int
    corrections: int
    waiting: int
    held_back: int
    unusable: int

    def as_counts(self) -> dict[str, Any]:
        """For the manifest."""
        return {
            "outcomes": dict(self.outcomes),
            "causes": dict(self.causes),
            "stream_alerts": self.stream_alerts,
            "overflow": self.overflow,
            "corrections": self.corrections,
            "left_to_the_stream": self.waiting,
            "held_back": self.held_back,
            "unusable_alerts": self.unusable,
        }


def compare(session: SparkSession, config: BackfillConfig, request: Request, notes: Notes) -> Compared:
    """Stage OUTCOMES, CORRECTED and HELD_BACK."""
    folder, root, here = request.staged(config.lake), config.lake.root, config.lake.max_driver_rows
    spans, rules = judged_spans(folder), PublishedRules.of(config, request, notes)
    versions = rules.asked_for.versions
    masked = frozenset(stream.name for stream in config.streams.values() if stream.sensitive)
    buckets = Buckets(folder, by_verdict(versions), Forgotten.of(root, versions), masked)
    buckets.clear()
    parallelism = session.sparkContext.defaultParallelism
    named = [(v.rule.id, v.version, group_by_name(v.rule.group_by)) for v in versions]
    files = delta.files_within(root, ALERTS, notes.versions[ALERTS.name], instant="event_time", spans=spans)
    judge = Judge(buckets, shares(files, parallelism), spans, named, parallelism)
    counted = _counts(exchange(session, judge, _COUNTED, folder / EXCHANGED, here))
    differing = sorted(int(name) for what, name in counted if what == "differing")
    if differing:
        readings = readings_of(config, request, notes, rules, read_judged_times(folder))
        version = notes.versions[PROGRESS.name]
        inquiry = Inquiry(
            buckets,
            readings,
            portions(readings, parallelism),
            differing,
            tuple(_late_files(config, notes, reading) for reading in readings),
            rules.published,
            stream_state.consumed(root, version),
            stream_state.began(root, version),
            {name: frozenset(value for _, value in of) for name, of in rules.reported.items()},
        )
        counted += _counts(exchange(session, inquiry, _COUNTED, folder / EXCHANGED, here))
    compared = _compared(counted)
    if compared.unusable:
        _log.warning("records of the alerts topic are not alerts, and were skipped", records=compared.unusable)
    return compared


def _counts(rows: pa.Table) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for row in rows.to_pylist():
        found[row["what"], row["name"]] += row["found"]
    return found


def _compared(counted: Mapping[tuple[str, str], int]) -> Compared:
    def of(what: str) -> Counter[str]:
        return Counter({name: found for (kind, name), found in counted.items() if kind == what})

    rest = ("stream_alerts", "overflow", "corrections", "waiting", "held_back", "unusable")
    return Compared(of("outcome"), of("cause"), **{what: of(what).total() for what in rest})


def _late_files(config: BackfillConfig, notes: Notes, reading: Reading) -> list[delta.File]:
    version = notes.versions[LATE_EVENTS.name]
    return delta.files_within(config.lake.root, LATE_EVENTS, version, instant="event_time", spans=reading.spans)


def _table(counts: Iterable[Count]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(_COUNTED.names, row, strict=True)) for row in counts], _COUNTED)


@dataclass(frozen=True)
class Judge:
    """What holds alerts against the truth. spans: event times (µs) that are judged; versions: rule id, version and
    group-by of those that the run is about; receivers: as many tasks as can run at once."""

    buckets: Buckets
    portions: Sequence[Sequence[delta.File]]
    spans: Sequence[tuple[int, int]]
    versions: Sequence[tuple[str, int, str]]
    receivers: int

    @property
    def tasks(self) -> int:
        """One a portion."""
        return len(self.portions)

    @property
    def rows(self) -> int:
        """Of all files, and what they are held against."""
        return sum(file.rows for files in self.portions for file in files) + self.buckets.rows

    def send(self, task: int) -> Iterator[tuple[int, pa.Table]]:
        """The records about judged alerts in a portion of the files. The first task sends to each bucket: all are
        received, whether there is anything about them or not."""
        found = self._records(self.portions[task])
        parts = {bucket: part for (bucket,), part in found.partition_by("bucket", as_dict=True).items()}
        if task == 0:
            parts = dict.fromkeys(self.buckets.numbers, found.clear()) | parts
        for bucket, part in parts.items():
            yield bucket, part.select(RECORD_SCHEMA.names).to_arrow(compat_level=pl.CompatLevel.oldest())

    def _records(self, files: Sequence[delta.File]) -> pl.DataFrame:
        event = pl.col("event_time").dt.epoch("us")
        records = (
            scan_files(ALERTS, files)
            .select(RECORD_SCHEMA.names)
            .filter(pl.col("alert_id").is_not_null() & within(event, self.spans))
        )
        versions = pl.LazyFrame(
            self.versions, {"rule_id": pl.String, "rule_version": pl.Int64, "group_by": pl.String}, orient="row"
        )
        of_rules = records.join(versions, on=["rule_id", "rule_version"]).sort("event_time")
        by = ["stream", "group_by", "group"]
        return in_spans(of_rules, event, self.buckets.groups(), by=by, begin="lo", end="hi").collect()

    def receive(self, bucket: int, rows: pa.Table) -> pa.Table:
        """Stage a bucket's outcomes; rows of _COUNTED."""
        return _table(self.buckets.judge(bucket, rows))


@dataclass(frozen=True)
class Inquiry(OverParts):
    """What finds causes. differing: the buckets with differences; late: by reading, the files of LATE_EVENTS; consumed,
    began: by topic and partition (see stream_state); lateness: by stream `allowed_lateness`, as reported, µs."""

    buckets: Buckets
    readings: Sequence[Reading]
    parts: Sequence[Portion]
    differing: Sequence[int]
    late: Sequence[Sequence[delta.File]]
    published: Mapping[tuple[str, int], Published]
    consumed: Mapping[str, Mapping[int, int]]
    began: Mapping[str, Mapping[int, int]]
    lateness: Mapping[str, frozenset[int]]

    @property
    def receivers(self) -> int:
        """One a bucket, which is sent to under its place in `differing`."""
        return len(self.differing)

    @cached_property
    def _groupings(self) -> list[tuple[Reading, int]]:
        """Of each bucket with differences the reading, and the number of the group-by in it."""
        known = {(of.stream.name, of.group_bys[number].name): (of, number) for of, number in groupings(self.readings)}
        return [known[self.buckets.grouping(bucket)] for bucket in self.differing]

    def send(self, task: int) -> Iterator[tuple[int, pa.Table]]:
        """The records of the groups with differences in a portion of the files, with LATE and CONFLICTS."""
        portion = self.parts[task]
        reading, folder = self.readings[portion.reading], self.buckets.folder
        stream = reading.stream
        near = self._flagged(portion).sort(stream.event_time).collect().lazy()
        is_first = task == 0 or self.parts[task - 1].reading != portion.reading
        for place, (of, number) in enumerate(self._groupings):
            if of is not reading:
                continue
            bucket = self.differing[place]
            differing = self.buckets.differing(bucket).select(pl.col("group").alias(GROUP)).unique()
            groups = parquet(groups_folder(folder, stream, number) / f"{bucket}.parquet")
            wanted = groups.join(differing, on=GROUP, how="semi").drop(GROUP, BUCKET)
            found = events_of(near, wanted, stream, reading.group_bys[number]).drop(TARGET).collect()
            if found.height or is_first:  # so that each bucket is received
                yield place, found.to_arrow(compat_level=pl.CompatLevel.oldest())

    def _flagged(self, portion: Portion) -> pl.LazyFrame:
        reading = self.readings[portion.reading]
        stream = reading.stream
        repeated = parquet(repeated_folder(self.buckets.folder, stream) / "*.parquet")
        conflicting = repeated.filter(CONFLICTS).select(stream.event_id, CONFLICTS).unique()
        flagged = reading.near(portion.files).join(conflicting, on=stream.event_id, how="left")
        late = self._late(portion.reading)
        # a lake of an earlier release lacks the record's coordinates
        placed, unplaced = (late.filter(pl.col("offset").is_null() == missing) for missing in (False, True))
        identity = [stream.event_id, stream.event_time]
        flagged = flagged.join(placed, on=[*identity, *PLACE], how="left")
        flagged = flagged.join(unplaced.drop(PLACE), on=identity, how="left", suffix=".unplaced")
        return flagged.with_columns(
            pl.coalesce(LATE, f"{LATE}.unplaced", False).alias(LATE),
            pl.col(CONFLICTS).fill_null(value=False),
        ).drop(f"{LATE}.unplaced")

    def _late(self, number: int) -> pl.LazyFrame:
        """What the stream reported as late, of a reading's events: their id, time and PLACE, and LATE."""
        stream, spans = self.readings[number].stream, self.readings[number].spans
        mine = (pl.col("stream") == stream.name) & within(pl.col("event_time").dt.epoch("us"), spans)
        records = scan_files(LATE_EVENTS, self.late[number]).filter(mine)
        place = {name: pl.col(f"record_{name}") for name in PLACE}
        return records.select(
            pl.col("event_id").alias(stream.event_id),
            pl.col("event_time").alias(stream.event_time),
            place["partition"].cast(pl.Int32, strict=False).alias("partition"),
            place["offset"].alias("offset"),
            pl.lit(value=True).alias(LATE),
        ).unique()

    def receive(self, place: int, rows: pa.Table) -> pa.Table:
        """Stage the outcomes of a bucket with differences; rows of _COUNTED."""
        reading, number = self._groupings[place]
        topic = reading.stream.topic
        events = as_declared(rows, reading.stream)
        for name in (LATE, CONFLICTS):
            events = events.append_column(name, rows.column(name))
        witness = Witness(
            reading.stream, reading.ruleset, reading.group_bys[number], events,
            published=self.published, consumed=self.consumed.get(topic, {}), began=self.began.get(topic, {}),
            lateness=self.lateness.get(reading.stream.name, frozenset()),
        )  # fmt: skip
        return _table(self.buckets.explain(self.differing[place], witness))
