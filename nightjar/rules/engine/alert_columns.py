"""The text columns of ALERT_SCHEMA: the only place where values become JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from nightjar.rules.absence import DUE
from nightjar.rules.allowing import MEMBER
from nightjar.rules.canonical import rewritten
from nightjar.rules.engine.columns import FEW, logical
from nightjar.rules.engine.evaluation import Allowed
from nightjar.rules.engine.measures import Values
from nightjar.rules.engine.plan import Aggregate, CompiledRule
from nightjar.rules.engine.store import EventStore
from nightjar.rules.engine.strings import Int64Array
from nightjar.rules.masking import MASK, sensitive_names
from nightjar.rules.measures import MAX_LISTED
from nightjar.rules.model import PLACEHOLDER
from nightjar.rules.types import FieldType, Kind

# Characters of a value in an alert's text, which is for people; group and measures have the whole value.
MAX_VALUE = 200
# Doubles from here to there, and 0, have one spelling; Polars and msgspec write exponents differently.
_PLAIN = (1e-5, 1e15)

_encode = msgspec.json.Encoder().encode


def jsonable(array: pa.Array, kind: FieldType) -> pa.Array:
    """Values as in JSON: decimals with all their digits and timestamps (ISO 8601, UTC) as text, others as they are."""
    if kind.kind is Kind.DECIMAL and len(array) <= FEW:
        return pa.array([None if value is None else format(value, "f") for value in array.to_pylist()], pa.string())
    if kind.kind is Kind.DECIMAL:  # by Polars: Arrow writes 0.00000001 as 1E-8
        return arrow(pl.Series(array).cast(pl.String))
    if kind.kind is Kind.TIMESTAMP:
        return pc.strftime(array, format="%Y-%m-%dT%H:%M:%SZ")
    return array


def json_objects(columns: Mapping[str, pa.Array], rows: int) -> pa.Array:
    """One JSON object per row (string or large_string), its members in the order of `columns`; NULL is null."""
    if rows <= FEW and all(map(_is_plain, columns.values())):
        return written_one_by_one(columns, rows)
    if not columns:
        return pa.array(["{}"] * rows, pa.string())
    frame = pl.DataFrame({name: pl.Series(name, array) for name, array in columns.items()})
    return arrow(frame.select(pl.struct(pl.all()).struct.json_encode()).to_series())


def written_one_by_one(columns: Mapping[str, pa.Array], rows: int, raw: Iterable[str] = ()) -> pa.Array:
    """A JSON object per row (string). raw: the columns that hold JSON texts."""
    values: list[list[Any]] = [column.to_pylist() for column in columns.values()]
    for at, name in enumerate(columns):
        if name in raw:
            values[at] = [msgspec.Raw(text.encode()) for text in values[at]]
    members = zip(*values, strict=True) if columns else [()] * rows
    return pa.array([_encode(dict(zip(columns, row, strict=True))).decode() for row in members], pa.string())


def _is_plain(column: pa.Array) -> bool:
    """Whether its values have one spelling in JSON."""
    if not pa.types.is_floating(column.type):
        return True
    size = np.abs(column.drop_null().to_numpy(zero_copy_only=False))
    return bool(((size == 0) | ((size >= _PLAIN[0]) & (size < _PLAIN[1]))).all())


def arrow(series: pl.Series) -> pa.Array:
    """A series of texts as large_string."""
    return series.to_arrow(compat_level=pl.CompatLevel.oldest())


def described_groups(columns: Mapping[str, pa.Array], rows: int) -> pa.Array:
    """The groups of some rows as `canonical` writes them (string or large_string), for the alert's id.

    columns: as from `jsonable`.
    """
    texts = json_objects(columns, rows)
    if any(pa.types.is_floating(column.type) for column in columns.values()):  # a double can be spelled in several ways
        texts = pa.array([rewritten(text) for text in texts.to_pylist()], pa.large_string())
    return texts


class Described:
    """The text columns (string or large_string) of one rule at some of the evaluated rows.

    rows: store rows; at: the positions of the same rows in the arrays of `values` and `allowed`, which says whose
    alerts allow rules silence. silenced: which these are (bool), None where there are none.
    """

    def __init__(
        self,
        store: EventStore,
        compiled: CompiledRule,
        values: Mapping[str, Values],
        rows: Int64Array,
        at: Int64Array,
        allowed: Allowed | None = None,
    ) -> None:
        self._store = store
        self._compiled = compiled
        self._rows = rows
        self._measures = {
            name: jsonable(measure_column(store, compiled, name, found, at), compiled.types[name])
            for name, found in values.items()
        }
        if compiled.rule.unless is not None:
            due = logical(store.times[rows] + compiled.rule.unless.within, None, FieldType(Kind.TIMESTAMP))
            self._measures[DUE] = jsonable(due, FieldType(Kind.TIMESTAMP))
        self.measures = json_objects(self._measures, len(rows))
        self.silenced: pa.Array | None = None
        if allowed is not None:
            by = pa.array(allowed.at(at), pa.string())
            self.measures = _with_allowed(self.measures, by)
            self.silenced = by.is_valid()
        self.group = described_groups({name: self._field(name) for name in compiled.rule.group_by}, len(rows))
        self.event_id = store.array(store.stream.event_id, rows)

    def _field(self, name: str) -> pa.Array:
        return jsonable(self._store.array(name, self._rows), self._store.stream.fields[name])

    def text(self) -> pa.Array:
        """The rule's description with {measure} and {field} filled in; other braces stay.

        Sensitive values are masked. Values have MAX_VALUE characters each, lists of them are whole. Doubles
        have two digits after the point, small ones two significant digits; `measures` has all.
        """
        parts = [*self._parts()]
        if len(self._rows) <= FEW:
            columns = [[part] * len(self._rows) if isinstance(part, str) else part.to_pylist() for part in parts]
            return pa.array(["".join(row) for row in zip(*columns, strict=True)], pa.string())
        values = {str(at): part for at, part in enumerate(parts) if not isinstance(part, str)}
        frame = pl.DataFrame({"": self.event_id} | values)
        whole = (pl.lit(part) if isinstance(part, str) else pl.col(str(at)) for at, part in enumerate(parts))
        text = frame.select(pl.concat_str(whole)).to_series()
        return arrow(text if len(text) == len(self._rows) else text.new_from_index(0, len(self._rows)))

    def _parts(self) -> Iterator[str | pa.Array]:
        """The parts of the text: those of the description, and the values as texts between them."""
        stream, description = self._store.stream, self._compiled.rule.description
        hidden = sensitive_names(self._compiled.rule, stream)
        shown: dict[str, str | pa.Array] = dict.fromkeys(hidden, MASK)
        end = 0
        for match in PLACEHOLDER.finditer(description):
            name = match[1]
            if name not in self._measures and name not in stream.fields:
                continue
            yield description[end : match.start()]
            if name not in shown:
                shown[name] = self._shown(name)
            yield shown[name]
            end = match.end()
        yield description[end:]

    def _shown(self, name: str) -> pa.Array:
        """The values of a measure or field as texts."""
        values = self._measures[name] if name in self._measures else self._field(name)
        measure = self._compiled.measures.get(name)
        most = None if isinstance(measure, Aggregate) and measure.function.spec.is_list else MAX_VALUE
        if pa.types.is_floating(values.type):
            values = arrow(pl.DataFrame({"": values}).select(_for_people(pl.col(""))).to_series())
        if len(values) <= FEW:
            return pa.array(["null" if v is None else _cell(v)[:most] for v in values.to_pylist()], pa.string())
        texts = pl.Series(values).cast(pl.String)
        return arrow((texts if most is None else texts.str.head(most)).fill_null("null"))


def _with_allowed(measures: pa.Array, by: pa.Array) -> pa.Array:
    """Measures as JSON, with the allow rule where there is one. by: its id, which needs no escaping, or NULL."""
    measures, by = measures.cast(pa.large_string()), by.cast(pa.large_string())
    open_ended = pc.utf8_slice_codeunits(measures, 0, -1)
    comma = pc.if_else(pc.equal(open_ended, "{"), "", ",").cast(pa.large_string())
    opening, closing, nothing = (pa.scalar(text, pa.large_string()) for text in (f'{MEMBER}"', '"}', ""))
    member = pc.binary_join_element_wise(open_ended, comma, opening, by, closing, nothing)
    return pc.coalesce(member, measures)


def _cell(value: str | int) -> str:
    """A value of a column from `jsonable` as text, but for doubles."""
    return str(value).lower() if isinstance(value, bool) else str(value)


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
    if found.texts is not None:
        return found.texts.take(pa.array(at))
    aggregate, kind = compiled.measures[name], compiled.types[name]
    if not isinstance(aggregate, Aggregate):
        return logical(found.values[at], None if found.valid is None else found.valid[at], kind)
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
    return arrow(found.select(value + more).to_series())
