"""The text columns of ALERT_SCHEMA: the only place where values become JSON."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from nightjar.rules.canonical import rewritten
from nightjar.rules.engine.columns import logical
from nightjar.rules.engine.measures import Values
from nightjar.rules.engine.plan import CompiledRule
from nightjar.rules.engine.store import EventStore
from nightjar.rules.engine.strings import Int64Array
from nightjar.rules.masking import MASK, sensitive_names
from nightjar.rules.measures import MAX_LISTED
from nightjar.rules.model import PLACEHOLDER
from nightjar.rules.types import FieldType, Kind

# Characters of a value in an alert's text, which is for people; group and measures have the whole value.
MAX_VALUE = 200


def jsonable(array: pa.Array, kind: FieldType) -> pa.Array:
    """Values as in JSON: decimals with all their digits and timestamps (ISO 8601, UTC) as text, others as they are."""
    if kind.kind is Kind.DECIMAL:  # by Polars: Arrow writes 0.00000001 as 1E-8
        return pl.Series(array).cast(pl.String).to_arrow(compat_level=pl.CompatLevel.oldest())
    if kind.kind is Kind.TIMESTAMP:
        return pc.strftime(array, format="%Y-%m-%dT%H:%M:%SZ")
    return array


def json_objects(columns: Mapping[str, pa.Array], rows: int) -> pl.Series:
    """One JSON object per row, its members in the order of `columns`; NULL is null."""
    if not columns:
        return pl.Series(["{}"] * rows, dtype=pl.String)
    frame = pl.DataFrame({name: pl.Series(name, array) for name, array in columns.items()})
    return frame.select(pl.struct(pl.all()).struct.json_encode()).to_series()


def described_groups(columns: Mapping[str, pa.Array], rows: int) -> pl.Series:
    """The groups of some rows as `canonical` writes them, for the alert's id. columns: as from `jsonable`."""
    texts = json_objects(columns, rows)
    if any(pa.types.is_floating(column.type) for column in columns.values()):  # a double can be spelled in several ways
        texts = pl.Series([rewritten(text) for text in texts], dtype=pl.String)
    return texts


class Described:
    """The text columns of one rule at some of the evaluated rows.

    rows: store rows; at: the positions of the same rows in the arrays of `values`.
    """

    def __init__(
        self, store: EventStore, compiled: CompiledRule, values: Mapping[str, Values], rows: Int64Array, at: Int64Array
    ) -> None:
        self._store = store
        self._compiled = compiled
        self._rows = rows
        self._measures = {
            name: jsonable(measure_column(store, compiled, name, found, at), compiled.types[name])
            for name, found in values.items()
        }
        self.measures = json_objects(self._measures, len(rows))
        self.group = described_groups({name: self._field(name) for name in compiled.rule.group_by}, len(rows))
        self.event_id = pl.Series(store.array(store.stream.event_id, rows), dtype=pl.String)

    def _field(self, name: str) -> pa.Array:
        return jsonable(self._store.array(name, self._rows), self._store.stream.fields[name])

    def text(self) -> pl.Series:
        """The rule's description with {measure} and {field} filled in; other braces stay.

        Sensitive values are masked. Values have MAX_VALUE characters each, lists of them are whole. Doubles
        have two digits after the point, small ones two significant digits; `measures` has all.
        """
        parts: list[pl.Expr] = []
        columns: dict[str, pa.Array] = {}
        end = 0
        description = self._compiled.rule.description
        measures = self._compiled.measures
        hidden = sensitive_names(self._compiled.rule, self._store.stream)
        lists = {name for name, measure in measures.items() if measure.function.spec.is_list}
        for match in PLACEHOLDER.finditer(description):
            name = match[1]
            if name not in self._measures and name not in self._store.stream.fields:
                continue
            if name in hidden:
                parts.append(pl.lit(description[end : match.start()] + MASK))
                end = match.end()
                continue
            columns[name] = self._measures[name] if name in self._measures else self._field(name)
            value = _for_people(pl.col(name)) if pa.types.is_floating(columns[name].type) else pl.col(name)
            value = value.cast(pl.String)
            value = (value if name in lists else value.str.head(MAX_VALUE)).fill_null("null")
            parts += [pl.lit(description[end : match.start()]), value]
            end = match.end()
        parts.append(pl.lit(description[end:]))
        frame = pl.DataFrame({"": self.event_id, **{name: pl.Series(name, array) for name, array in columns.items()}})
        text = frame.select(pl.concat_str(parts)).to_series()
        return text if len(text) == len(self._rows) else text.new_from_index(0, len(self._rows))


def _for_people(double: pl.Expr) -> pl.Expr:
    """A double with the digits that a person needs; from 1e15 on none after the point, as scaling could overflow."""
    size = double.abs()
    hundredths = double.round(2).cast(pl.String).str.replace(r"\.(\d)$", ".${1}0")
    return (
        pl.when(size >= 1e15)
        .then(double.cast(pl.String))
        .when((size > 0) & (size < 0.01))
        .then(double.round_sig_figs(2).cast(pl.String))
        .otherwise(hundredths)
    )


def measure_column(store: EventStore, compiled: CompiledRule, name: str, found: Values, at: Int64Array) -> pa.Array:
    """A measure's values at some of the evaluated rows in its type; a list as text (S2.4)."""
    aggregate, kind = compiled.measures[name], compiled.types[name]
    if found.listing is not None:
        assert aggregate.field is not None
        return _listed(store, aggregate.field, *found.listing.at(at))
    if kind.kind is Kind.STRING:
        assert aggregate.field is not None
        return store.strings(aggregate.field, found.codes[at])
    return logical(found.values[at], None if found.valid is None else found.valid[at], kind)


def _listed(store: EventStore, field: str, values: Int64Array, kept: Int64Array, others: Int64Array) -> pa.Array:
    """Lists of a field's values as text (S2.4), NULL where a list is empty. values, kept, others: see Listing.at."""
    kind = store.stream.fields[field]
    if kind.kind is Kind.STRING:
        shown = pl.Series(store.strings(field, values), dtype=pl.String)
    else:
        shown = pl.Series(jsonable(logical(values, None, kind), kind)).cast(pl.String)
    value, rows = pl.col("value"), np.arange(len(kept))
    cut = pl.when(value.str.len_chars() > MAX_LISTED).then(value.str.head(MAX_LISTED - 1) + "…").otherwise(value)
    lists = pl.DataFrame({"at": np.repeat(rows, kept), "value": shown}).group_by("at").agg(cut.str.join(", "))
    found = pl.DataFrame({"at": rows, "others": others}).join(lists, on="at", how="left", maintain_order="left")
    more = pl.when(pl.col("others") > 0).then(pl.format(" and {} more", "others")).otherwise(pl.lit(""))
    return found.select(value + more).to_series().to_arrow(compat_level=pl.CompatLevel.oldest())
