"""Checks that records in Avro, Protobuf and envelopes are read alike by columns and one by one."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from checks.bench.figures import log_progress
from checks.fuzz.hostile_formats import STREAMS, UNKNOWN_UNTIL, HostileFormats, HostileRecord, known_schemas
from checks.fuzz.parsing import ARRIVAL, Findings, differences
from nightjar.formats.decoding import recorded
from nightjar.formats.records import Raw, Records
from nightjar.formats.schemas import Schemas
from nightjar.ingestion.parsing import parse_columns
from nightjar.rules.events import Rejection, check_skew
from nightjar.rules.streams import Stream

_BATCH = 20_000


def formats_agreement(records: int, seed: int, findings: Findings) -> list[dict[str, Any]]:
    """So many records of each stream of hostile_formats; a line for each."""
    lines = []
    for name, stream in STREAMS.items():
        with known_schemas() as schemas:
            source, counts = HostileFormats(name, random.Random(seed)), Counter[str]()
            began = time.monotonic()
            for at in range(0, records, _BATCH):
                batch = [source.record() for _ in range(min(_BATCH, records - at))]
                counts += compared(stream, batch, schemas, findings)
                log_progress(f"{name}: {at + len(batch):,} records compared after {time.monotonic() - began:.0f} s")
            line = {"name": f"records of {name} read alike by columns and one by one", "records": records, "seed": seed}
            lines.append({**line, **counts, "seconds": round(time.monotonic() - began, 1)})
    return lines


def compared(stream: Stream, batch: Sequence[HostileRecord], schemas: Schemas, findings: Findings) -> Counter[str]:
    """How many became what; differences are findings. Every tenth record comes while a schema is unknown."""
    arrivals = pa.array([UNKNOWN_UNTIL if at % 10 == 0 else ARRIVAL for at in range(len(batch))], pa.int64())
    records = Records.of(batch, arrivals, stream)
    parsed = parse_columns(records, stream, schemas)
    beside = records.beside(range(len(batch)))

    def alone(at: int) -> dict[str, Any] | Rejection:
        raw = Raw(batch[at].value or b"", arrivals[at].as_py(), None if beside is None else beside[at])
        event = recorded(raw, stream, schemas)
        if isinstance(event, Rejection):
            return event
        return check_skew(event[stream.event_time], raw.arrival, stream) or event

    return differences(stream, batch, parsed, alone, findings)
