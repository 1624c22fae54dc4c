"""What the functions of a stage share: built once a stage, and passed as one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from nightjar.backfill.config import BackfillConfig, RunRequest
from nightjar.backfill.inputs.published_rules import PublishedRules
from nightjar.backfill.staging import EXCHANGED, Notes
from nightjar.lake.arrow_shuffle import Work, exchange
from nightjar.lake.table_rows import LakeTables
from nightjar.lake.tables import TABLES, Table
from nightjar.rules.streams import tables_of
from nightjar.storage.paths import AnyPath

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class RunInputs:
    """What a run was requested to do, and what it has pinned."""

    config: BackfillConfig
    request: RunRequest
    notes: Notes
    other_rules: PublishedRules | None = field(default=None, kw_only=True)
    """Evaluated in the place of the published ones, which may or may not be among them; None: the published ones."""

    @cached_property
    def rules(self) -> PublishedRules:
        """The rules to evaluate.

        Raises:
            BackfillError: a rule that was asked for was never published.
        """
        if self.other_rules is not None:
            return self.other_rules
        return PublishedRules.of(self.config.streams, self.request.rules, self.notes.answers)

    @property
    def root(self) -> AnyPath:
        """The lake's folder."""
        return self.config.lake.root

    @property
    def folder(self) -> AnyPath:
        """The run's staged folder."""
        return self.request.staged(self.config.lake)

    @property
    def tables(self) -> LakeTables | None:
        """The rows of tables as the run has pinned them, else the newest; None if no table is declared."""
        found = LakeTables.newest(self.root, tables_of(self.config.streams))
        pinned = self.notes.versions.get(TABLES.name)
        return found if found is None or pinned is None else replace(found, version=pinned)

    def version(self, table: Table) -> Any:
        """The version (delta.Version) of the table that the run reads."""
        if table.parts:
            return tuple(self.notes.versions[part.table.name] for part in table.parts)
        return self.notes.versions[table.name]


@dataclass(frozen=True)
class RunContext(RunInputs):
    """The same in a Spark session."""

    session: SparkSession

    @property
    def parallelism(self) -> int:
        """How many tasks can run at once."""
        return self.session.sparkContext.defaultParallelism

    def exchange(self, work: Work, schema: pa.Schema) -> pa.Table:
        """Do some work in tasks, or here where there is little; see arrow_shuffle.exchange."""
        return exchange(self.session, work, schema, self.folder / EXCHANGED, self.config.lake.max_driver_rows)

    def counted(self, work: Work, schema: pa.Schema) -> dict[str, int]:
        """Do some work whose results are counts; the sum of each column."""
        found = self.exchange(work, schema)
        return {name: pc.sum(found.column(name)).as_py() or 0 for name in schema.names}
