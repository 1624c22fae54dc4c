"""Reports of a backtest: an HTML page that opens without a network, and JSON."""

from nightjar.backtest.labels import read_labels
from nightjar.backtest.report import as_mapping, write_report

__all__ = ["as_mapping", "read_labels", "write_report"]
