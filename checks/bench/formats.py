"""Measures how fast a backlog in Avro and in Protobuf is processed, compared with the same backlog in JSON.

    python -m checks.bench.formats [--events 1000000] [--turns 2] [--formats avro protobuf]

As checks/bench/drain.py, with uniform keys: the job drains each backlog in turns. Records of the schemas have the same
values as those of JSON: a text each for ids, a time in microseconds, an amount as decimal bytes (Avro) or text
(Protobuf). Before that the records are parsed alone, without Kafka and the job; there it is processor time.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from checks.bench.drain import turn
from checks.bench.figures import emit, log_progress
from checks.bench.pipeline import RULES, events, prepare
from nightjar.configuration.settings import Settings, load_settings
from nightjar.formats.encoding import Encoder
from nightjar.formats.records import Records
from nightjar.ingestion.parsing import parse_columns
from nightjar.kafka import topics
from nightjar.kafka.clients import producer
from nightjar.local.kafka import LocalKafka
from nightjar.rules.streams import Stream, load_streams

_SPREAD_US = 300_000_000
# Records that are parsed alone, how often, and an arrival after all of them (µs).
_PARSED, _PARSED_TURNS, _PARSED_AT = 50_000, 9, 4_000_000_000_000_000
_AVRO = {
    "type": "record",
    "name": "Payment",
    "fields": [
        {"name": "transaction_id", "type": "string"},
        {"name": "event_time", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "customer_id", "type": "string"},
        {"name": "terminal_id", "type": "string"},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
    ],
}
_PROTOBUF = """syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Payment {
  string transaction_id = 1;
  google.protobuf.Timestamp event_time = 2;
  string customer_id = 3;
  string terminal_id = 4;
  string amount = 5;
}
"""
_SCHEMAS = {"avro": ("payment.avsc", json.dumps(_AVRO)), "protobuf": ("payment.proto", _PROTOBUF)}
FORMATS = ("json", *_SCHEMAS)
_STREAM = """[streams.transactions]
topic = "transactions-{form}"
event_id = "transaction_id"
event_time = "event_time"
entities = ["customer_id", "terminal_id"]
format = "{form}"
{schema}

[streams.transactions.fields]
transaction_id = "string"
event_time = "timestamp"
customer_id = "string"
terminal_id = "string"
amount = "decimal(12,2)"
"""


def declared(form: str, folder: Path) -> Path:
    """A file that declares the stream in this format."""
    folder.mkdir(parents=True)
    schema = ""
    if form in _SCHEMAS:
        name, content = _SCHEMAS[form]
        (folder / name).write_text(content)
        schema = f'schema_file = "{name}"'
    file = folder / "streams.toml"
    file.write_text(_STREAM.format(form=form, schema=schema))
    return file


def fill(settings: Settings, stream: Stream, count: int, compression: str | None = None) -> None:
    """Send the backlog in order of event time."""
    with producer(settings, linger_ms=50, batch_size=256 * 1024, compression_type=compression) as client:
        for key, value in encoded(stream, count):
            client.send(stream.topic, key=key, value=value)


def encoded(stream: Stream, count: int) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of the backlog's records."""
    encoder = Encoder(stream)
    began = time.time_ns() // 1000 - _SPREAD_US
    for number, (identifier, customer, terminal, amount) in enumerate(events(count, hot=0, seed=7)):
        event: dict[str, Any] = {
            "transaction_id": identifier.decode(),
            "event_time": _text(began + number * _SPREAD_US // count),
            "customer_id": customer,
            "terminal_id": terminal,
            "amount": amount,
        }
        yield customer.encode(), encoder.encode(json.dumps(event).encode()).value


def parsing(files: Mapping[str, Path], turns: int) -> dict[str, list[float]]:
    """Processor time of parsing a record (µs), a value for each turn."""
    streams = {form: load_streams(file)["transactions"] for form, file in files.items()}
    found: dict[str, list[float]] = {form: [] for form in files}
    records = {
        form: Records(pa.array([value for _, value in encoded(stream, _PARSED)]), pa.repeat(_PARSED_AT, _PARSED))
        for form, stream in streams.items()
    }
    for _ in range(turns):
        for form, stream in streams.items():
            began = time.process_time()
            parsed = parse_columns(records[form], stream)
            found[form].append((time.process_time() - began) / _PARSED * 1e6)
            assert not parsed.rejected
    return found


def _text(microseconds: int) -> str:
    seconds, rest = divmod(microseconds, 1_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:06}Z"


def main() -> None:
    """Measure in turns and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--formats", nargs="+", choices=_SCHEMAS, default=list(_SCHEMAS))
    options = parser.parse_args()
    found: dict[str, list[float]] = {form: [] for form in ("json", *options.formats)}
    with tempfile.TemporaryDirectory(prefix="nightjar-bench-") as scratch:
        folder = Path(scratch)
        with LocalKafka(load_settings(data_dir=folder / "kafka", kafka_port=0)) as broker:
            prepare(broker.settings, publishing=True, rules=RULES)
            files = {form: declared(form, folder / f"declared-{form}") for form in found}
            alone = parsing(files, _PARSED_TURNS)
            for form in options.formats:
                emit(f"parsing in {form}", "us/event", alone[form], "the same in JSON", alone["json"], goal=None)
            for form, file in files.items():
                log_progress(f"sending {options.events:,} events in {form}")
                settings = broker.settings.model_copy(update={"streams": file})
                stream = load_streams(file)["transactions"]
                topics.ensure(settings, [stream])
                fill(settings, stream, options.events)
            for number in range(options.turns):
                for form, rates in found.items():
                    log_progress(f"turn {number + 1} of {options.turns}: {form}")
                    settings = broker.settings.model_copy(update={"streams": files[form]})
                    place = folder / f"{form}-{number}"
                    rates.append(turn("job", settings, place, options.events, f"transactions-{form}"))
    seconds = {form: [1_000_000 / rate for rate in rates] for form, rates in found.items()}
    met = True
    for form in options.formats:
        name = f"drain of {options.events:,} in {form}"
        met &= emit(name, "us/event", seconds[form], "the same in JSON", seconds["json"], goal=1.0)
    if not met:
        raise SystemExit("a goal is missed")


if __name__ == "__main__":
    main()
