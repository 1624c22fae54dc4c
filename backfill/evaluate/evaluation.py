"""The stage that evaluates a day: the same engine as in the stream, bucket by bucket of the touched groups.

How it works: everything is read at versions that are recorded first, so that a run can be repeated. Results go to the
run's staged folder and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from nightjar.backfill.evaluate.survey import REPEATS, SurveyTasks, survey
from nightjar.backfill.inputs.context import RunContext
from nightjar.backfill.inputs.event_selection import (
    ARRIVED,
    PLACE,
    EventSelection,
    EventSplit,
    buckets_of,
    event_splits,
    groupings,
    judged_times,
    selections_of,
)
from nightjar.backfill.inputs.pending_alerts import stage_pending
from nightjar.backfill.inputs.retained import Retained
from nightjar.backfill.inputs.scope import BUCKET, GROUP, TARGET, GroupBy, events_of
from nightjar.backfill.staging import (
    EVALUATED,
    groups_folder,
    repeated_folder,
    stage,
    write_judged_times,
)
from nightjar.lake.arrow_shuffle import OverSplits
from nightjar.lake.events import as_declared
from nightjar.lake.scanning import parquet
from nightjar.lake.table_rows import rows_of
from nightjar.rules.engine.store import ARRIVAL
from nightjar.rules.engine.table_rows import TableRows
from nightjar.rules.streams import Stream
from nightjar.rules.truth import VIOLATION_SCHEMA, Truth
from nightjar.rules.types import INSTANT
from nightjar.rules.versions import RuleSet
from nightjar.storage.paths import AnyPath, remove_tree

_log = structlog.get_logger(__name__)

_GROUP_BYS_A_RECEIVER = 4
_COUNTED = pa.schema([("violations", pa.int64()), ("failures", pa.int64()), ("muted", pa.int64())])
# What holds at target events, and (`failed`) which measures have no value there.
EVALUATED_SCHEMA = VIOLATION_SCHEMA.append(pa.field("failed", pa.string()))


@dataclass(frozen=True)
class EvaluationTasks(OverSplits):
    """What the evaluation's tasks do. folder: what the survey has staged; cut: how many buckets a group-by has."""

    selections: Sequence[EventSelection]
    splits: Sequence[EventSplit]
    folder: AnyPath
    cut: int

    @cached_property
    def groupings(self) -> list[tuple[EventSelection, int]]:
        """Every group-by, as its number in its selection."""
        return groupings(self.selections)

    @property
    def receivers(self) -> int:
        """One for a bucket of each of a few group-bys, one after another."""
        return self.cut * math.ceil(len(self.groupings) / _GROUP_BYS_A_RECEIVER)

    def send(self, task: int) -> Iterator[tuple[int, pa.Table]]:
        """The events of the touched groups in a split of the files."""
        split = self.splits[task]
        selection = self.selections[split.selection]
        repeated = parquet(repeated_folder(self.folder, selection.stream) / "*.parquet").filter(REPEATS)
        first = selection.near(split.files).join(repeated, on=PLACE, how="anti")
        near = first.drop(ARRIVED).sort(selection.stream.event_time).collect().lazy()
        for of, number in self.groupings:
            if of is not selection:
                continue
            groups = parquet(groups_folder(self.folder, selection.stream, number) / "*.parquet").drop(GROUP)
            wanted = events_of(near, groups, selection.stream, selection.group_bys[number]).collect()
            for (bucket,), part in wanted.partition_by(BUCKET, as_dict=True, include_key=False).items():
                yield bucket, part.to_arrow(compat_level=pl.CompatLevel.oldest())

    def receive(self, bucket: int, rows: pa.Table) -> pa.Table:
        """Stage the results for a bucket's groups; returns a row of _COUNTED."""
        selection, number = self.groupings[bucket // self.cut]
        tables = rows_of(selection.tables)
        found = violations_and_failures(
            selection.stream, selection.ruleset, selection.group_bys[number], rows, selection.clock, tables
        )
        stage(found, self.folder / EVALUATED / f"{bucket}.parquet")
        failures = found.num_rows - found.column("failed").null_count
        muted = pc.sum(found.column("muted")).as_py() or 0
        return pa.table({"violations": [found.num_rows - failures], "failures": [failures], "muted": [muted]})


def evaluate(run: RunContext, pending: pl.DataFrame | None = None) -> dict[str, Any]:
    """Stage the day's violations and failures (EVALUATED) and touched groups (TOUCHED_GROUPS); their counts.

    pending: rows of the table `reconciliation`, of days before the run's: alerts that were left to the stream and are
    now judged again.
    """
    retained = {name: Retained.of(run.root, stream, run.notes.versions) for name, stream in run.config.streams.items()}
    counts = evaluate_rules(run, pending, retained)
    if counts["beyond_retention"]:
        _log.warning(
            "events are dated before what lake_retention has kept: alerts of that time stand as they are",
            day=str(run.request.day),
            groups=counts["beyond_retention"],
        )
    return counts


def evaluate_rules(
    run: RunContext, pending: pl.DataFrame | None = None, retained: Mapping[str, Retained] = MappingProxyType({})
) -> dict[str, Any]:
    """As `evaluate`, where the lake has so much of each stream; none: it has everything."""
    folder = run.folder
    again = stage_pending(run, pending)
    judged = judged_times(run, again)
    write_judged_times(folder, judged)
    selections = selections_of(run, judged)
    splits, cut = event_splits(selections, run.parallelism), buckets_of(selections, run.parallelism)
    surveyed = survey(run, SurveyTasks(selections, splits, folder, cut, again, retained))
    remove_tree(folder / EVALUATED)  # of an earlier attempt
    stage(EVALUATED_SCHEMA.empty_table(), folder / EVALUATED / "none.parquet")  # where there is nothing else to read
    return run.counted(EvaluationTasks(selections, splits, folder, cut), _COUNTED) | surveyed


def staged_violations(folder: AnyPath) -> int:
    """The number of violations that a run has found."""
    found = parquet(folder / EVALUATED / "*.parquet").filter(pl.col("failed").is_null())
    return int(found.select(pl.len()).collect(engine="streaming").item())


def violations_and_failures(
    stream: Stream,
    ruleset: RuleSet,
    group_by: GroupBy,
    events: pa.Table,
    clock: int,
    tables: TableRows | None = None,
) -> pa.Table:
    """The violations at the target events of some whole groups, with all that their windows reach: EVALUATED_SCHEMA.

    events: the stream's fields and TARGET; and ARRIVED, where ids repeat. A row with `failed` is none: it names the
    measure whose exact value left its type at that event. clock: see Truth.
    """
    truth = truth_of(stream, ruleset, group_by, events, clock, tables)
    is_target = events.column(TARGET).to_numpy()
    found = truth.violations(np.flatnonzero(is_target))
    found = found.append_column("failed", pa.nulls(found.num_rows, pa.string()))
    failures = [
        {
            "rule_id": f.rule_id,
            "rule_version": f.rule_version,
            "stream": stream.name,
            "event_id": f.event_id,
            "failed": f.measure,
        }
        for f in truth.failures
        if is_target[f.row]
    ]
    return pa.concat_tables([found, pa.Table.from_pylist(failures, EVALUATED_SCHEMA)])


def truth_of(
    stream: Stream, ruleset: RuleSet, group_by: GroupBy, events: pa.Table, clock: int, tables: TableRows | None = None
) -> Truth:
    """What holds at some whole groups' events. events, clock: as `violations_and_failures` has them."""
    declared = as_declared(events, stream)
    if ARRIVAL not in declared.column_names:  # no id is repeated, so the order of arrival decides nothing
        declared = declared.append_column(ARRIVAL, pa.repeat(pa.scalar(0, INSTANT), events.num_rows))
    return Truth(stream, ruleset, declared, frozenset({group_by.fields}), tables, clock=clock)
