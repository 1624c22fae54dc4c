"""Evaluates rules over a table of events; `nightjar evaluate` as a library."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from nightjar.rules.engine.table_rows import TableRows
from nightjar.rules.errors import RuleError, SettingsError
from nightjar.rules.model import Rule
from nightjar.rules.over_alerts import problems
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import MIN_TIMESTAMP
from nightjar.rules.truth import RESULT_SCHEMA, Truth
from nightjar.rules.versions import RuleSet

# What many rows share. Ids and times are each another: a dictionary of them takes time, and room in the file.
_REPEATED = ["rule_id", "rule_version", "group", "measures"]


def evaluate(stream: Stream, rules: Iterable[Rule], events: pa.Table, tables: TableRows | None = None) -> Truth:
    """Evaluate the rules on the events of one stream; rules on other streams are ignored.

    A rule applies from its `effective` time on, or from the beginning. events, tables: see `Truth`.

    Raises:
        RuleError: a rule names another one that is not among them.
        EvaluationError: a measure's exact value is out of the range of its type.
    """
    rules = [*rules]
    if found := [problem for rule in rules for problem in problems(rule, rules, among="evaluated")]:
        raise RuleError(found, where="the rules")
    truth = Truth(stream, RuleSet.of(rules, MIN_TIMESTAMP), events, tables=tables)
    truth.refuse_failures()
    return truth


def write_truth(truth: Truth, path: Path, *, every: bool, progress: Callable[[int], object] | None = None) -> int:
    """Write the violations (every: all evaluations) as Parquet of RESULT_SCHEMA, and return the number of rows.

    `progress` is called with the number of rows of each part written. The file appears only when it is complete.
    """
    part = path.with_name(f".{path.name}.part")
    rows = 0
    try:
        with pq.ParquetWriter(part, RESULT_SCHEMA, compression="zstd", use_dictionary=_REPEATED) as writer:
            for table in truth.tables(every=every):
                writer.write_table(table, row_group_size=max(1, table.num_rows))
                rows += table.num_rows
                if progress is not None:
                    progress(table.num_rows)
        part.replace(path)
    except OSError as failure:
        part.unlink(missing_ok=True)
        raise SettingsError(
            f"cannot be written ({failure.strerror or failure})",
            where=str(path),
            remedy="Name a file in a folder you can write to",
        ) from None
    return rows
