"""Which events are fraud, from a file that an investigation left, or that the simulator wrote."""

import glob
from collections.abc import Callable
from pathlib import Path

import polars as pl

from nightjar.rules.errors import SettingsError
from nightjar.rules.names import did_you_mean
from nightjar.rules.streams import Stream

_NAMES = ("label", "scenario", "fraud", "is_fraud")
_GENUINE = ("", "false", "no", "none", "null", "genuine", "legitimate")
_SCANS: dict[str, Callable[[Path], pl.LazyFrame]] = {
    ".parquet": pl.scan_parquet,
    ".csv": pl.scan_csv,
    ".tsv": lambda path: pl.scan_csv(path, separator="\t"),
    ".jsonl": pl.scan_ndjson,
    ".ndjson": pl.scan_ndjson,
}


def refuse_unknown_field(label: str, stream: Stream) -> None:
    """Refuse a field that is to be the label and does not exist.

    Raises:
        SettingsError: the stream has no such field.
    """
    if label not in stream.fields:
        remedy = did_you_mean(label, stream.fields, "Fields are")
        raise SettingsError(f"is not a field of stream {stream.name}", where=label, remedy=remedy)


def is_genuine(text: pl.Expr) -> pl.Expr:
    """Whether a label, as text, says that it was no fraud; NULL for NULL."""
    number = text.cast(pl.Float64, strict=False)  # as 0, -0.0 and a decimal's 0.00 are one
    return text.str.to_lowercase().is_in(_GENUINE) | ((number == 0) | number.is_nan()).fill_null(value=False)


def read_labels(path: Path, stream: Stream, column: str | None = None) -> pl.LazyFrame:
    """`event_id` and `label` of a Parquet, CSV or JSON-lines file, of text also with `.gz`, or of a folder of Parquet.

    The id is in a column `event_id`, or one called like the stream's. column: that of the labels; None: the first of
    label, scenario, fraud, is_fraud.

    Raises:
        SettingsError: the file cannot be read, or lacks a column.
    """
    rows = label_rows(path)
    names = rows.collect_schema().names()
    event_id = named_column(path, names, ("event_id", stream.event_id))
    label = named_column(path, names, _NAMES if column is None else (column,))
    return rows.select(pl.col(event_id).alias("event_id"), pl.col(label).alias("label"))


def label_rows(path: Path) -> pl.LazyFrame:
    """All columns of a file of labels, of the formats that `read_labels` reads.

    Raises:
        SettingsError: the file cannot be read.
    """
    scan = pl.scan_parquet if path.is_dir() else _SCANS.get(Path(path.name.lower().removesuffix(".gz")).suffix)
    if scan is None:
        remedy = f"Name it {', '.join(_SCANS)}; those of text also with .gz"
        raise SettingsError("is not a known kind of file", where=str(path), remedy=remedy)
    if not path.exists():
        raise SettingsError("does not exist", where=str(path), remedy="Name a file of labels")
    try:
        rows = scan(Path(glob.escape(str(path))))  # Polars takes brackets in a name for a pattern
        rows.collect_schema()
    except (OSError, pl.exceptions.PolarsError) as error:
        found = str(error).split("\n", 1)[0]
        raise SettingsError(f"cannot be read: {found}", where=str(path), remedy="Check its format") from None
    return rows


def named_column(path: Path, names: list[str], wanted: tuple[str, ...]) -> str:
    """The first of the wanted columns that the file has.

    Raises:
        SettingsError: it has none.
    """
    for name in wanted:
        if name in names:
            return name
    raise SettingsError(
        f"has no column {' or '.join(dict.fromkeys(wanted))}",
        where=str(path),
        remedy=did_you_mean(wanted[0], names, "Its columns are"),
    )
