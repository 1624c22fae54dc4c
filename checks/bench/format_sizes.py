"""Measures the bytes that an event takes in Kafka, plain and compressed, and in the lake, by the format of its records.

    python -m checks.bench.format_sizes [--events 200000]

The records are those of checks/bench/formats.py. In Kafka it is the size of the topic's segments on one broker, with
keys and the batches that a busy producer makes; in the lake that of the Parquet files after one archive.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from checks.bench.figures import log_progress
from checks.bench.formats import FORMATS, declared, fill
from nightjar.configuration.settings import Settings, load_settings
from nightjar.jvm.jars import PROJECT
from nightjar.kafka import topics
from nightjar.lake.tables import events_table
from nightjar.local.kafka import LocalKafka
from nightjar.rules.streams import load_streams

_COMPRESSIONS = (None, "zstd")


def sizes(form: str, compression: str | None, events: int, folder: Path) -> dict[str, object]:
    """Bytes of an event in a broker of its own and, of plain records, in a lake of its own."""
    file = declared(form, folder / "declared")
    stream = load_streams(file)["transactions"]
    given = load_settings(data_dir=folder / "kafka", kafka_port=0, streams=file)
    with LocalKafka(given) as broker:
        topics.ensure(broker.settings, [stream])
        fill(broker.settings, stream, events, compression)
        held = sum(each.stat().st_size for each in broker.folder.glob(f"data/{stream.topic}-*/*.log"))
        found: dict[str, object] = {"format": form, "in Kafka": round(held / events, 1)}
        if compression is None:
            lake = _archived(broker.settings, file, folder / "site")
            files = (lake / events_table(stream).name).rglob("*.parquet")
            found["in the lake"] = round(sum(each.stat().st_size for each in files) / events, 1)
    return found


def _archived(settings: Settings, streams: Path, folder: Path) -> Path:
    """The lake with the events of the broker."""
    lake = folder / "lake"
    environment = {
        **os.environ,
        "NIGHTJAR_BOOTSTRAP_SERVERS": settings.bootstrap,
        "NIGHTJAR_DATA_DIR": str(folder),
        "NIGHTJAR_LAKE_DIR": str(lake),
        "NIGHTJAR_STREAMS": str(streams),
        "PYTHONPATH": str(PROJECT),
    }
    subprocess.run([sys.executable, "-m", "nightjar", "archive"], env=environment, stdout=sys.stderr, check=True)
    return lake


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=200_000)
    options = parser.parse_args()
    for compression in _COMPRESSIONS:
        for form in FORMATS:
            name = f"size of an event, {'plain' if compression is None else compression}"
            log_progress(f"{name}: {form}")
            with tempfile.TemporaryDirectory(prefix="nightjar-bench-") as scratch:
                found = sizes(form, compression, options.events, Path(scratch))
            print(json.dumps({"name": name, "unit": "bytes", "events": options.events, **found}), flush=True)


if __name__ == "__main__":
    main()
