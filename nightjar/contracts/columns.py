"""Records encoded by column: the JSON text of every row, without a Python object per record unless there are few."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from nightjar.contracts.alerts import ALERT, STREAM
from nightjar.contracts.record_type import RecordType
from nightjar.rules.alert_schema import ALERT_SCHEMA
from nightjar.rules.engine.alert_columns import arrow, json_objects, jsonable, written_one_by_one
from nightjar.rules.engine.columns import FEW, one_batch
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import iso_text
from nightjar.rules.types import TIMESTAMP, FieldType

Columns = dict[str, pa.Array]

_KINDS = {name: FieldType(ALERT.members[name].kind) for name in ALERT_SCHEMA.names}


def alert_columns(alerts: pa.Table, emitted_at: int) -> Columns:
    """The members of the stream's alerts (the engine's), as `texts` takes them. emitted_at: µs since 1970."""
    rows = alerts.num_rows
    columns = zip(_KINDS.items(), one_batch(alerts).columns, strict=True)
    return {
        **{name: jsonable(column, kind) for (name, kind), column in columns},
        "source": pa.repeat(STREAM, rows),
        "emitted_at": pa.repeat(iso_text(emitted_at), rows),
    }


def overflowing(values: pa.Array) -> pa.Array:
    """The JSON of alerts with their last member, `overflow`, which only those have that are marked."""
    return pc.binary_join_element_wise(pc.utf8_slice_codeunits(values, 0, -1), ',"overflow":true}', "")


def late_columns(late: pa.Table, stream: Stream) -> Columns:
    """The members of the records of late events (the engine's), as `texts` takes them.

    Without partition and offset if `late` has none.
    """
    fields = {name: jsonable(late.column(name).combine_chunks(), kind) for name, kind in stream.fields.items()}
    return {
        "stream": pa.repeat(stream.name, late.num_rows),
        "event_id": late.column(stream.event_id).combine_chunks(),
        "event_time": fields[stream.event_time],
        "arrival_time": jsonable(late.column("arrival_time").combine_chunks(), TIMESTAMP),
        **{name: late.column(name).combine_chunks() for name in ("partition", "offset") if name in late.column_names},
        "event": json_objects(fields, late.num_rows),
    }


def texts(record: RecordType, columns: Mapping[str, pa.Array], rows: int) -> pa.Array:
    """The records' JSON, the members of each in the order of the contract.

    columns: of some members, as `alert_columns.jsonable` has them; those that are JSON as its text.
    """
    if unknown := columns.keys() - record.members.keys():
        raise ValueError(f"{', '.join(sorted(unknown))}: not a member of {record.name} records")
    given = [name for name in record.members if name in columns]
    if rows <= FEW:
        raw = {name for name in given if record.members[name].is_json}
        return written_one_by_one({name: columns[name] for name in given}, rows, raw)
    parts: list[pl.Expr] = []
    made: dict[str, pl.Series] = {}
    for is_json, names in groupby(given, lambda name: record.members[name].is_json):
        for together in [[name] for name in names] if is_json else [list(names)]:
            first, last = together[0], together[-1]
            if is_json:
                made[first] = pl.Series(columns[first], dtype=pl.String)
                parts.append(pl.lit(f',"{first}":' if parts else f'{{"{first}":'))
            else:
                whole = pl.Series(json_objects({name: columns[name] for name in together}, rows))
                made[first] = whole.str.slice(1) if first != given[0] else whole
                if last != given[-1]:
                    made[first] = made[first].str.head(-1)
                if parts:
                    parts.append(pl.lit(","))
            parts.append(pl.col(first))
    if record.members[given[-1]].is_json:
        parts.append(pl.lit("}"))
    found = pl.DataFrame(made).select(pl.concat_str(parts)).to_series()
    return arrow(found).cast(pa.string())
