"""Checks that the columnar parser and nightjar/rules/events.py, the reference, parse hostile records alike."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from checks.bench.figures import log_progress
from checks.fuzz.hostile_events import Hostile, HostileEvents, literals
from nightjar.formats.records import Records
from nightjar.generate import Options, generate
from nightjar.ingestion.parsing import Parsed, parse_events
from nightjar.rules.events import Rejection, check_skew, parse_event
from nightjar.rules.streams import Stream, load_streams, streams_from_mapping

# Records that are read at once.
_BATCH = 50_000
# Findings of one kind that are shown; the rest are counted.
_SHOWN = 5
ARRIVAL = int(datetime(2026, 1, 20, tzinfo=UTC).timestamp()) * 1_000_000

# A stream with every type, where the shipped ones have but some, and with optional fields.
READINGS: dict[str, Any] = {
    "topic": "readings",
    "event_id": "id",
    "event_time": "at",
    "entities": ["who"],
    "fields": {
        "id": "string",
        "at": "timestamp",
        "who": "string",
        "amount": "decimal(12,2)",
        "fine": "decimal(18,18)",
        "whole": "decimal(12,0)",
        "number": "int64",
        "ratio": "double",
        "flag": "boolean",
        "seen": "timestamp",
        "note": {"type": "string", "optional": True},
        "fee": {"type": "decimal(12,2)", "optional": True},
        "until": {"type": "timestamp", "optional": True},
        "coin": "decimal(18,8)",
    },
}

# The same elsewhere in a record, with times that are written otherwise.
_PLACES: dict[str, dict[str, str]] = {
    "id": {"from": "meta.id"},
    "at": {"from": "meta.times[1]", "zone": "Europe/Berlin"},
    "amount": {"from": "payment.amount.value"},
    "coin": {"from": "coins[1]"},
    "fine": {"from": '"net/fine".value'},
    "seen": {"from": "items[0].seen", "unit": "us"},
    "until": {"format": "%d.%m.%Y %H:%M:%S", "zone": "America/New_York"},
    "fee": {"from": "payment.fee"},
}
PLACED = {
    **READINGS,
    "topic": "placed",
    "fields": {
        name: {**(kind if isinstance(kind, dict) else {"type": kind}), **_PLACES.get(name, {})}
        for name, kind in READINGS["fields"].items()
    }
    | {
        "payer": {"sql": "LOWER(who)"},
        "hour": {"sql": "HOUR(at AT TIME ZONE 'Europe/Berlin')"},
        "twice": {"sql": "2 * fee"},
    },
}


def streams() -> dict[str, Stream]:
    """The shipped streams with simulated events, one with every type, and one with every way to declare a field."""
    shipped = load_streams()
    return {
        "transactions": shipped["transactions"],
        "logins": shipped["logins"],
        **streams_from_mapping({"readings": READINGS, "placed": PLACED}, "bench"),
    }


def good_events(seed: int) -> dict[str, list[dict[str, str]]]:
    """Simulated events by stream, each field as its JSON text."""
    made = generate(Options(events=2000, days=14, customers=100, terminals=50, seed=seed))
    found = {
        name: [literals({k: v for k, v in row.items() if k != "scenario"}) for row in table.to_pylist()]
        for name, table in made.items()
    }
    rng = random.Random(seed)
    found["readings"] = [
        {
            "id": event["transaction_id"],
            "at": event["event_time"],
            "who": event["customer_id"],
            "amount": rng.choice((event["amount"], json.dumps(event["amount"]))),
            "fine": f"{rng.choice(('0.', '0.000'))}{rng.randrange(10**11)}",
            "coin": f"{rng.randrange(10**8)}.{rng.randrange(10**3)}",
            "whole": str(rng.randrange(10**12)),
            "number": str(rng.randrange(-(2 ** (bits := rng.choice((31, 31, 31, 63)))), 2**bits)),
            "ratio": rng.choice((f"{rng.random():.6f}", f"{rng.random():.6f}", repr(rng.lognormvariate(0, 20)))),
            "flag": rng.choice(("true", "false", "null")),
            "seen": str(rng.randrange(10**12, 2 * 10**12)),
        }
        for event in found["transactions"]
    ]
    for reading, event in zip(found["readings"], found["transactions"], strict=True):
        optional = {"note": event["terminal_id"], "fee": event["amount"], "until": event["event_time"]}
        reading.update(rng.sample(list(optional.items()), rng.randrange(4)))
    found["placed"] = found["readings"]
    return found


class Findings:
    """Defects found, by kind; the first of each are logged immediately."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, kind: str, detail: object) -> None:
        """Note a finding."""
        self.counts[kind] += 1
        if self.counts[kind] <= _SHOWN:
            log_progress(f"FOUND {kind}: {detail!r:.1500}")


def agreement(records: int, seed: int, findings: Findings) -> dict[str, Any]:
    """Whether each record in its column is what parse_event says, and neither stumbles."""
    rng, declared, good = random.Random(seed), streams(), good_events(seed)
    sources = {name: HostileEvents(stream, good[name], rng) for name, stream in declared.items()}
    counts: Counter[str] = Counter()
    began = time.monotonic()
    for number, at in enumerate(range(0, records, _BATCH)):
        name = list(declared)[number % len(declared)]
        batch = [sources[name].record() for _ in range(min(_BATCH, records - at))]
        counts += _compared(declared[name], batch, findings)
        log_progress(f"{at + len(batch):,} records compared after {time.monotonic() - began:.0f} s")
    return {
        "name": "records read alike by columns and one by one",
        "records": records,
        "seed": seed,
        **counts,
        "seconds": round(time.monotonic() - began, 1),
    }


def _compared(stream: Stream, batch: Sequence[Hostile], findings: Findings) -> Counter[str]:
    values = pa.array([hostile.value for hostile in batch], pa.binary())
    parsed = parse_events(Records(values, pa.repeat(ARRIVAL, len(batch))), stream)

    def alone(at: int) -> dict[str, Any] | Rejection:
        event = parse_event(batch[at].value or b"", stream)
        return event if isinstance(event, Rejection) else check_skew(event[stream.event_time], ARRIVAL, stream) or event

    return differences(stream, batch, parsed, alone, findings)


def differences(
    stream: Stream,
    batch: Sequence[object],
    parsed: Parsed,
    alone: Callable[[int], dict[str, Any] | Rejection],
    findings: Findings,
) -> Counter[str]:
    """How many records of a batch became what; where one by one and by columns differ is a finding.

    alone: what becomes of the record at a place by itself.
    """
    columns = {name: _plain(parsed.events.column(name)) for name in stream.fields}
    events = {row: {name: of[at] for name, of in columns.items()} for at, row in enumerate(parsed.rows.tolist())}
    refused = dict(parsed.rejected)
    counts: Counter[str] = Counter()
    for at, record in enumerate(batch):
        try:
            found = alone(at)
        except Exception as failure:  # noqa: BLE001  a finding, whatever it is
            findings.add("one record raised", (failure, record))
            continue
        if isinstance(found, Rejection):
            counts[found.reason.value] += 1
            if refused.get(at) != found:
                findings.add("one refuses what the other reads", (record, found, refused.get(at), events.get(at)))
            if not _is_understandable(found.detail):
                findings.add("a reason nobody understands", (record, found))
        else:
            counts["used"] += 1
            if events.get(at) != found:
                findings.add("read otherwise", (record, found, events.get(at), refused.get(at)))
    return counts


def _plain(column: pa.ChunkedArray) -> list[Any]:
    return (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()


def _is_understandable(detail: str) -> bool:
    """Whether a message is fit for people: some words on one line, without Python's own errors."""
    return 5 < len(detail) < 300 and "recursion" not in detail and "\n" not in detail and "Traceback" not in detail
