"""Writes simulated events as Parquet files."""

from collections.abc import Callable
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from nightjar.generate import Options, Scenario, generate
from nightjar.rules.errors import SettingsError


def write_simulated(
    options: Options, folder: Path, announce: Callable[[Path], object]
) -> dict[str, dict[str, int | str]]:
    """Simulate, and write a file per stream into the folder. announce: called with each file before it is written.

    Returns by stream: `file`, `events`, and how many of them each scenario has.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"cannot be created ({error.strerror})"
        raise SettingsError(what, where=str(folder), remedy="Name another folder") from None
    written: dict[str, dict[str, int | str]] = {}
    for name, table in generate(options).items():
        path = folder / f"{name}.parquet"
        announce(path)
        pq.write_table(table, path, compression="zstd")
        counts = {scenario.value: pc.sum(pc.equal(table["scenario"], scenario)).as_py() or 0 for scenario in Scenario}
        written[name] = {"file": str(path), "events": table.num_rows, **counts}
    return written
