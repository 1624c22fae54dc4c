"""Whether `nightjar explain` says of alerts what stream and night have published about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from nightjar.backfill.config import BackfillConfig
from nightjar.backfill.explain.explanation import Unarchived, explain
from nightjar.contracts.alerts import ALERT
from nightjar.contracts.json_text import json_object
from nightjar.contracts.rule_status import RULE_STATUS as ANSWER
from nightjar.lake import delta
from nightjar.lake.config import LakeConfig
from nightjar.lake.tables import ALERTS, RENAMED, RULE_STATUS, TABLES, Table, events_table
from nightjar.rules.rulebook import Record
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import from_microseconds
from tests.support.agreement import final
from tests.support.unions import divided


class Corrections:
    """Corrections that the night has staged and not published, as what the archive has yet to bring to the lake."""

    notes: Sequence[str] = ()

    def __init__(self, records: Iterable[Mapping[str, Any]]) -> None:
        self._rows = pl.DataFrame(_alert_table(records))

    def answers(self) -> Sequence[Record]:
        """The lake has all."""
        return ()

    def alerts(self, alert_id: str) -> pl.DataFrame:
        """Those of the alert."""
        return self._rows.filter(alert_id=alert_id)

    def events(self, stream: Stream, since: int) -> pl.DataFrame | None:
        """The lake has all."""
        return None


def disagreements(
    config: BackfillConfig,
    records: Iterable[dict[str, Any]],
    some: int | None = None,
    unarchived: Unarchived | None = None,
) -> Iterator[str]:
    """What the explanations of alerts say otherwise than the highest revisions of their records, which are the truth.

    records: those of the alerts topic with the night's corrections, in the order of revisions. some: how many alerts
    are explained (None: all). unarchived: records that the lake does not have.
    """
    every = [*records]
    held = final(every)
    for alert_id in sorted({record["alert_id"] for record in every})[:some]:
        if wrong := disagreement(config, alert_id, holds=alert_id in held, unarchived=unarchived):
            yield f"{wrong}: {_named(every, alert_id)}"


def disagreement(
    config: BackfillConfig,
    alert_id: str,
    *,
    holds: bool,
    unarchived: Unarchived | None = None,
    judged: bool = False,
) -> str | None:
    """What the explanation of an alert says otherwise than its highest revision, which is the truth. holds: whether
    that announces it; judged: whether a run has judged it."""
    found = explain(config, alert_id, unarchived)
    if found.violated != holds:
        return f"explain: {alert_id} {'holds' if found.violated else 'does not hold'}"
    if not found.status.confirmed:
        return f"explain: {alert_id} is not what was published: {found.status}"
    if judged and found.status.judged_by is not None:
        return f"explain: {alert_id} is yet to be judged by the night of {found.status.judged_by}"
    return None


def _named(records: list[dict[str, Any]], alert_id: str) -> list[dict[str, Any]]:
    return [record for record in records if record["alert_id"] == alert_id]


def lake_of(
    root: Path,
    streams: Mapping[str, Stream],
    events: Mapping[str, pa.Table],
    alerts: Iterable[Mapping[str, Any]],
    answers: Iterable[Record],
    changes: Iterable[Record] = (),
) -> BackfillConfig:
    """A lake of these records in the folder. events: by stream its fields, arrival_time, partition, offset; alerts: as
    JSON; changes: of tables."""
    streams = {**streams, **{source.name: source for stream in streams.values() for source in stream.sources}}
    for name, table in events.items():
        arrived = pl.DataFrame(table).with_columns(pl.col("arrival_time").dt.date().alias("arrival_date"))
        for source, rows in divided(streams[name], arrived.to_dicts()):
            _add(root, events_table(source), rows)
    delta.make(root, ALERTS)
    delta.add(root, ALERTS, _alert_table(alerts), "test", 1)
    rows = [
        {
            RENAMED.get(name, name): of.value((json_object(answer.value) or {}).get(name))
            for name, of in ANSWER.members.items()
        }
        | {"offset": answer.offset, "arrival_time": from_microseconds(answer.arrival)}
        for answer in answers
    ]
    _add(root, RULE_STATUS, rows)
    listed = [
        {"value": each.value, "partition": 0, "offset": each.offset, "arrival_time": from_microseconds(each.arrival)}
        for each in changes
    ]
    _add(root, TABLES, listed)
    return BackfillConfig(LakeConfig(root, dict(streams)), "producer")


def _alert_table(alerts: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Records of the alerts topic as the lake has them."""
    members = {name: member for name, member in ALERT.members.items() if name in ALERTS.columns}
    return _table(ALERTS, [{name: of.value(alert.get(name)) for name, of in members.items()} for alert in alerts])


def _add(root: Path, table: Table, rows: list[dict[str, Any]]) -> None:
    delta.make(root, table)
    delta.add(root, table, _table(table, rows), "test", 1)


def _table(table: Table, rows: list[dict[str, Any]]) -> pa.Table:
    """Rows, what they lack NULL; times are µs, or datetimes."""
    columns = [_typed([row.get(column.name) for row in rows], column) for column in table.arrow]
    return pa.table(columns, schema=table.arrow)


def _typed(values: list[Any], column: pa.Field) -> pa.Array:
    if pa.types.is_timestamp(column.type) and all(value is None or isinstance(value, int) for value in values):
        return pa.array(values, pa.int64()).cast(column.type)
    return pa.array(values, column.type)
