"""Outcomes, causes and corrections of one bucket's alerts, staged as Parquet.

A bucket has whole groups, so its results are independent of other buckets. Without differences it is done at once, else
once the causes are known.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa

from nightjar.backfill.inputs.context import RunInputs
from nightjar.backfill.inputs.forgotten import Forgotten
from nightjar.backfill.inputs.pending_alerts import staged_pending
from nightjar.backfill.reconcile.causes import CauseFinder
from nightjar.backfill.reconcile.reconciliation import (
    Versions,
    by_verdict,
    corrections,
    latest_revisions,
    reconcile,
    well_formed,
    with_withdrawn,
)
from nightjar.backfill.staging import (
    CORRECTED,
    DIFFERING,
    EVALUATED,
    HELD_BACK,
    JUDGED,
    OUTCOMES,
    TOUCHED_GROUPS,
    UNCHANGED,
    stage,
    staged_files,
)
from nightjar.contracts.alerts import RECORD_SCHEMA
from nightjar.contracts.reconciliation import Cause, Outcome
from nightjar.lake.scanning import parquet
from nightjar.rules.truth import VIOLATION_SCHEMA
from nightjar.storage.paths import AnyPath, remove_tree

# Corrections of these are not published: the stream has yet to read what they are about, and a later run looks again;
# or nobody knows whether the stream or the truth is right, and a person has to look.
_WAITING, _HELD_BACK = Cause.STREAM_DOWN.value, Cause.UNEXPLAINED.value
_NO_CAUSES = pl.DataFrame(schema={"alert_id": pl.String, "cause": pl.String})

# What is counted, of which kind, and how many.
Count = tuple[str, str, int]


@dataclass(frozen=True)
class Buckets:
    """A run's outcomes and corrections in its staged folder, bucket by bucket. verdict_only: see by_verdict.

    forgotten: the erased events; what was announced with these stands (S15.4). masked: the streams with sensitive
    fields.
    """

    folder: AnyPath
    verdict_only: Versions = ()
    forgotten: Forgotten = field(default_factory=Forgotten.none)
    masked: frozenset[str] = frozenset()

    @classmethod
    def of(cls, run: RunInputs) -> Buckets:
        """The buckets of a run."""
        versions = run.rules.asked_for.versions
        masked = frozenset(stream.name for stream in run.config.streams.values() if stream.sensitive)
        return cls(run.folder, by_verdict(versions), Forgotten.of(run.root, versions), masked)

    def clear(self) -> None:
        """Remove the files of an earlier attempt; write empty tables, so that there is something to read."""
        for name in (JUDGED, DIFFERING, OUTCOMES, CORRECTED, HELD_BACK, UNCHANGED):
            remove_tree(self.folder / name)
        self._conclude("none", self._truth("none"), pl.DataFrame(RECORD_SCHEMA.empty_table()), _NO_CAUSES)

    @property
    def numbers(self) -> list[int]:
        """Those that have groups which the run judges."""
        return sorted(
            int(file.stem) for file in (self.folder / TOUCHED_GROUPS).glob("*.parquet") if file.stem != "none"
        )

    @property
    def rows(self) -> int:
        """The numbers of violations and touched groups."""
        folders = (self.folder / name for name in (EVALUATED, TOUCHED_GROUPS))
        return sum(file.rows for folder in folders for file in staged_files(folder))

    def groups(self) -> pl.LazyFrame:
        """TOUCHED_GROUPS of all buckets."""
        return parquet(self.folder / TOUCHED_GROUPS / "*.parquet")

    def grouping(self, bucket: int) -> tuple[str, str]:
        """The stream and group-by of a bucket's groups."""
        first = parquet(self._file(TOUCHED_GROUPS, bucket)).select("stream", "group_by").head(1)
        stream, group_by = first.collect().row(0)
        return stream, group_by

    def differing(self, bucket: int) -> pl.LazyFrame:
        """The outcomes of a bucket with differences."""
        return parquet(self._file(DIFFERING, bucket))

    def judge(self, bucket: int, records: pa.Table) -> list[Count]:
        """Stage the outcomes of a bucket or, if some differ, the input for finding their causes; returns counts.

        records: of the alerts topic (RECORD_SCHEMA).
        """
        alerts = self._alerts(records)
        stream = latest_revisions(alerts.filter(pl.col("source") == "stream"))
        counts = [
            ("stream_alerts", "", stream.filter(pl.col("kind") == "alert").height),
            ("overflow", "", stream.filter(pl.col("kind") == "alert", pl.col("overflow")).height),
            ("unusable", "", records.num_rows - alerts.height),
        ]
        truth = self._truth(bucket)
        differing = self._outcomes(truth, alerts).filter(pl.col("outcome") != Outcome.MATCHED.value)
        if not differing.height:
            return counts + self._conclude(bucket, truth, alerts, _NO_CAUSES)
        self._stage(JUDGED, bucket, alerts)
        self._stage(DIFFERING, bucket, differing)
        return [*counts, ("differing", str(bucket), differing.height)]

    def explain(self, bucket: int, finder: CauseFinder) -> list[Count]:
        """Stage the outcomes of a bucket with differences; returns counts."""
        alerts = parquet(self._file(JUDGED, bucket)).collect()
        differing = self.differing(bucket).collect()
        causes = finder.causes(differing)
        depends = differing.filter(self.forgotten.depends(differing)).get_column("alert_id")
        is_forgotten = pl.col("alert_id").is_in(depends.implode()) & (pl.col("cause") != _WAITING)
        cause = pl.when(is_forgotten).then(pl.lit(Cause.FORGOTTEN.value)).otherwise("cause").alias("cause")
        return self._conclude(bucket, self._truth(bucket), alerts, causes.with_columns(cause))

    def _conclude(
        self, bucket: int | str, truth: pl.DataFrame, alerts: pl.DataFrame, causes: pl.DataFrame
    ) -> list[Count]:
        outcomes = self._outcomes(truth, alerts).join(causes, on="alert_id", how="left")
        outcomes = with_withdrawn(outcomes, self._pending(bucket))
        wrong = corrections(truth, alerts, causes, self.verdict_only, self.masked)
        stands = self.forgotten.depends(wrong) & (wrong.get_column("cause") != _WAITING)
        unchanged, wrong = wrong.filter(stands).select("alert_id"), wrong.filter(~stands)
        held_back = wrong.filter(pl.col("cause") == _HELD_BACK)
        kept = {
            UNCHANGED: unchanged,
            CORRECTED: wrong.filter(~pl.col("cause").is_in([_WAITING, _HELD_BACK])),
            HELD_BACK: held_back.join(outcomes.select("alert_id", "outcome"), on="alert_id", how="left"),
        }
        for name, rows in {OUTCOMES: outcomes, **kept}.items():
            self._stage(name, bucket, rows)
        counts = [("outcome", *of) for of in outcomes.get_column("outcome").value_counts().iter_rows()]
        counts += [("cause", *of) for of in outcomes.get_column("cause").drop_nulls().value_counts().iter_rows()]
        return [
            *counts,
            ("corrections", "", kept[CORRECTED].height),
            ("held_back", "", kept[HELD_BACK].height),
            ("waiting", "", wrong.filter(pl.col("cause") == _WAITING).height),
        ]

    def _outcomes(self, truth: pl.DataFrame, alerts: pl.DataFrame) -> pl.DataFrame:
        return reconcile(truth, alerts, self.verdict_only, self.masked)

    def _alerts(self, records: pa.Table) -> pl.DataFrame:
        return well_formed(pl.DataFrame(records.cast(RECORD_SCHEMA)).lazy()).collect()

    def _truth(self, bucket: int | str) -> pl.DataFrame:
        file = self._file(EVALUATED, bucket)
        evaluated = parquet(file if file.exists() else self._file(EVALUATED, "none")).collect()
        return evaluated.filter(pl.col("failed").is_null()).select(VIOLATION_SCHEMA.names)

    def _pending(self, bucket: int | str) -> pl.DataFrame:
        """The pending alerts that the run has judged in the bucket."""
        groups, pending = parquet(self._file(TOUCHED_GROUPS, bucket)).collect(), staged_pending(self.folder)
        judged = pl.col("event_time").dt.epoch("us").is_between("lo", "hi")
        return pending.join(groups, on=["stream", "group_by", "group"]).filter(judged).select(pending.columns)

    def _stage(self, name: str, bucket: int | str, rows: pl.DataFrame) -> None:
        stage(rows.to_arrow(compat_level=pl.CompatLevel.oldest()), self._file(name, bucket))

    def _file(self, name: str, bucket: int | str) -> AnyPath:
        return self.folder / name / f"{bucket}.parquet"
