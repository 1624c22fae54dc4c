"""Replace rows in the tables of results by a run's, in Spark tasks, alert by alert.

How it works: the table's rows and the run's go to a task by their alert id. There the run's rows replace those that it
has judged, and changes are counted; the driver holds counts, and streams files into one commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from nightjar.backfill.config import RunRequest
from nightjar.backfill.inputs.scope import group_by_name
from nightjar.backfill.staging import TOUCHED_GROUPS, stage
from nightjar.lake import delta
from nightjar.lake.arrow_shuffle import Partitioned
from nightjar.lake.scanning import file_rows, parquet, scan_files
from nightjar.lake.tables import Table
from nightjar.rules.versions import RuleVersion
from nightjar.storage.paths import AnyPath, remove_tree

CHANGED = pa.schema([("changed", pa.int64())])
_NEW, _JUDGED = "run.new", "run.judged"


@dataclass(frozen=True)
class RowSplit:
    """Files that one task reads. new: staged ones, and not the table's."""

    files: tuple[delta.File, ...]
    new: bool


@dataclass(frozen=True)
class ReplacementTasks(Partitioned):
    """What replaces rows."""

    table: Table
    splits: Sequence[RowSplit]
    request: RunRequest
    """Its day is that of the rows, where the table has a day."""
    staged: AnyPath
    """The run's staged folder."""
    versions: Sequence[RuleVersion]
    """Those that the run is about."""
    all_judged: bool
    """Each row of the table gives way; else those of the versions in the touched groups and spans, and those of alerts
    that the run has rows of."""
    folder: AnyPath
    """Where the rows go that take their place."""
    partitions: int
    unchanged: frozenset[str] = frozenset()
    """Ids of alerts whose rows stay as they are."""

    def send(self, task: int) -> Iterator[tuple[int, pa.Table]]:
        """A split's rows."""
        split = self.splits[task]
        rows = self._staged(split) if split.new else self._known(split)
        return self.partitioned(rows, pl.col("alert_id"))

    def _staged(self, split: RowSplit) -> pl.DataFrame:
        rows = pl.concat([file_rows(file) for file in split.files])
        if "failed" in rows.collect_schema():  # what has no value is not a violation
            rows = rows.filter(pl.col("failed").is_null())
        rows = rows.filter(~pl.col("alert_id").is_in(self.unchanged))
        return self._placed(rows).with_columns(pl.lit(True).alias(_NEW), pl.lit(True).alias(_JUDGED)).collect()  # noqa: FBT003

    def _known(self, split: RowSplit) -> pl.DataFrame:
        rows = self._placed(scan_files(self.table, split.files)).collect()
        if self.all_judged:
            return rows.with_columns(pl.lit(False).alias(_NEW), pl.lit(True).alias(_JUDGED))  # noqa: FBT003
        judged = self._in_scope(rows.lazy()).filter(~pl.col("alert_id").is_in(self.unchanged))
        ids = judged.select("alert_id").collect().to_series()
        return rows.with_columns(pl.lit(False).alias(_NEW), pl.col("alert_id").is_in(ids.implode()).alias(_JUDGED))  # noqa: FBT003

    def _placed(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """With the columns that folders are named after."""
        dates = {"event_date": pl.col("event_time").dt.date(), "day": pl.lit(self.request.day)}
        return rows.with_columns(dates[name].alias(name) for name in self.table.partitioned_by).select(
            *self.table.columns
        )

    def _in_scope(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """The rows that the run has judged: of its rules, in the touched groups and their spans."""
        named = [(v.rule.id, v.version, group_by_name(v.rule.group_by)) for v in self.versions]
        kinds = {"rule_id": pl.String, "rule_version": pl.Int64, "group_by": pl.String}
        touched = parquet(self.staged / TOUCHED_GROUPS / "*.parquet").drop("bucket")
        event = pl.col("event_time").dt.epoch("us")
        judged = rows.join(pl.LazyFrame(named, kinds, orient="row"), on=["rule_id", "rule_version"])
        judged = judged.join(touched, on=["stream", "group_by", "group"])
        return judged.filter((event >= pl.col("lo")) & (event <= pl.col("hi")))

    def receive(self, bucket: int, rows: pa.Table) -> pa.Table:
        """Write what a partition's rows become; how many have changed."""
        both, names = pl.DataFrame(rows), list(self.table.columns)
        new = both.filter(_NEW).select(names)
        known = both.filter(~pl.col(_NEW))
        gives_way = pl.col(_JUDGED) | pl.col("alert_id").is_in(new.get_column("alert_id").implode())
        old, kept = known.filter(gives_way).select(names), known.filter(~gives_way).select(names)
        whole = pl.concat([kept, new]).to_arrow(compat_level=pl.CompatLevel.oldest())
        stage(whole.cast(self.table.arrow), self.folder / f"{bucket}.parquet")
        changes = (a.join(b, on=names, how="anti", nulls_equal=True).height for a, b in ((new, old), (old, new)))
        return pa.table({"changed": [sum(changes)]})


def emptied(folder: AnyPath) -> AnyPath:
    """The folder, with nothing in it."""
    remove_tree(folder)
    folder.mkdir(parents=True)
    return folder
