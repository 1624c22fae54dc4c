"""Writes a stream's declaration from example records: what their fields are, where, and what is doubtful.

How it works: each record is read as JSON with its numbers as they are written. All values at one path are looked at
together, and the narrowest type that takes all of them is proposed. Of a list only the first element is. At last the
declaration is tried on the records that it was made from, as the stream would read them.

What it cannot know: which of two fields that differ in each record is the id, which time is the event's, and what the
records that are not among the examples hold. The text says where that is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from nightjar.configuration.settings import Settings
from nightjar.files.json_records import json_records
from nightjar.formats.wire import schema_of
from nightjar.kafka.readers import Reader
from nightjar.operations.infer_draft import (
    OF_TIME,
    Draft,
    Field,
    Found,
    InferenceError,
    can_be_declared,
    check_name,
    chosen,
    number,
    words,
    written,
)
from nightjar.rules.events import parse_event, read_json
from nightjar.rules.field_paths import FieldPath

_MOST_DEPTH = 20


def topic_examples(settings: Settings, topic: str, most: int) -> list[bytes]:
    """The newest records of a topic, about so many, without tombstones.

    Raises:
        KafkaError: see Reader.
    """
    with Reader(settings, topic) as reader:
        partitions = max(1, len(reader.ends()))
        return [record.value for record in reader.last(-(-most // partitions)) if record.value]


def file_examples(path: Path, most: int) -> list[bytes]:
    """The first records of a file of JSON, which may be compressed (see `json_records`).

    Raises:
        InferenceError: it cannot be read.
        EventsError: see `json_records`.
    """
    try:
        return [record for _, record in islice(json_records(path), most)]
    except OSError as failure:
        what = f"cannot be read: {failure.strerror or failure}"
        raise InferenceError(what, where=str(path), remedy="Give a file with a JSON object in each line") from None


def stream_name(origin: str) -> str:
    """The name of a stream after that of its topic or file."""
    return re.sub(r"[^a-z0-9]+", "_", origin.lower()).lstrip("_0123456789").rstrip("_")[:60] or "events"


def declaration(records: Sequence[bytes], name: str, topic: str) -> str:
    """The TOML text that declares a stream of such records.

    Raises:
        InferenceError: none of them is a JSON object, or a stream cannot have the name.
    """
    check_name(name)
    objects = [found for found in map(_object, records) if found is not None]
    if not objects:
        what = f"none of {len(records):,} records is a JSON object" if records else "there are no records"
        remedy = "Give a topic of JSON objects, or a file with one in each line"
        if named := next((record for record in records if schema_of(record) is not None), None):
            remedy = f"They name schemas of a registry, as {schema_of(named)}: set schema_registry"
        raise InferenceError(what, where=name, remedy=remedy)
    fields, left_out = chosen(_leaves(objects), _refused, lambda name, found: _field(name, found, len(objects)))
    draft = Draft(name, topic, f"Examples: {len(objects):,}.", fields, left_out, len(objects))
    return written(draft, lambda stream: [parse_event(record, stream) for record in records])


def _object(record: bytes) -> dict[str, Any] | None:
    try:
        found = read_json(record.decode("utf-8"))
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _leaves(objects: Iterable[dict[str, Any]]) -> list[Found]:
    """What is at each path, in the order in which the records have them; at least that of scalars."""
    found: dict[tuple[str | int, ...], Found] = {}

    def visit(value: Any, steps: tuple[str | int, ...]) -> None:
        if steps:
            found.setdefault(steps, Found(FieldPath(steps))).add(value)
        if len(steps) >= _MOST_DEPTH:
            return
        if isinstance(value, dict):
            for key, each in value.items():
                visit(each, (*steps, key))
        elif isinstance(value, list) and value and steps:
            visit(value[0], (*steps, 0))

    for each in objects:
        visit(each, ())
    mixed = {steps for steps, each in found.items() if each.is_mixed}
    ends = found.keys() - {steps[:-1] for steps in found}
    return [
        each
        for steps, each in found.items()
        if (each.is_mixed or not each.kinds.keys() & {"object", "list"} or steps in ends)
        and not any(steps[:end] in mixed for end in range(1, len(steps)))
    ]


def _refused(found: Found) -> str | None:
    """Why no field has what is there."""
    if not can_be_declared(found.path):
        return "whose name has a quote or no valid characters"
    if not found.known:
        return "which is NULL in all records"
    if found.kinds.keys() <= {"object", "list"}:
        return "which is empty in all records, or too deep"
    return "which is a value, an object or a list in different records" if found.is_mixed else None


def _field(name: str, found: Found, records: int) -> Field:
    keys, doubts = _typed(found)
    if found.path != FieldPath((name,)):
        keys["from"] = str(found.path)
    if found.present < records:
        keys["optional"] = True
    if 0 in found.path.steps:
        doubts.append("? the first of a list")
    return Field(name, found, keys, doubts)


def _typed(found: Found) -> tuple[dict[str, Any], list[str]]:
    """The keys `type`, `unit` and `zone`, and doubts."""
    known, kinds = found.known, found.kinds
    if kinds.keys() == {"boolean"}:
        return {"type": "boolean"}, []
    if kinds.keys() == {"number"}:
        return number(found)
    if found.times == known:
        return {"type": "timestamp"}, []
    if kinds["text"] == known and found.times + found.local_times == known:
        return {"type": "timestamp", "zone": "UTC"}, ["? times without a zone: say which it is"]
    if kinds.keys() <= {"text", "number"} and words(found.key) & OF_TIME and found.times + kinds["number"] == known:
        unit = next((unit for unit, many in found.epochs.items() if many == kinds["number"]), None)
        if unit is not None:
            return {"type": "timestamp", "unit": unit}, [f"? {unit} since 1970, or text"]
    if kinds["text"] == known and found.decimal_texts == known:
        return {"type": "string"}, ['? numbers in quotes: "decimal(12,2)" takes them too']
    if len(kinds) > 1:
        return {"type": "string"}, [f"? {' and '.join(sorted(kinds))}: a string takes the texts of all"]
    return {"type": "string"}, []
