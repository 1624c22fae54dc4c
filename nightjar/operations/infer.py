"""Writes a stream's declaration from example records: what their fields are, where, and what is doubtful.

How it works: each record is read as JSON with its numbers as they are written. All values at one path are looked at
together, and the narrowest type that takes all of them is proposed. Of a list only the first element is. At last the
declaration is tried on the records that it was made from, as the stream would read them.

What it cannot know: which of two fields that differ in each record is the id, which time is the event's, and what the
records that are not among the examples hold. The text says where that is guessed.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from nightjar.configuration.settings import Settings
from nightjar.files.json_records import json_records
from nightjar.kafka.readers import Reader
from nightjar.rules.errors import DeclarationError, NightjarError, printable, shortened
from nightjar.rules.event_values import JsonNumber
from nightjar.rules.events import Rejection, parse_event, read_json
from nightjar.rules.field_paths import FieldPath
from nightjar.rules.names import is_usable_name
from nightjar.rules.streams import RESERVED_FIELDS, STREAM_NAME, Stream, streams_from_mapping
from nightjar.rules.timestamps import parse_timestamp
from nightjar.rules.types import MAX_PRECISION, Kind

MOST_FIELDS = 200
_MOST_DEPTH = 20

_LOCAL_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?", re.ASCII)
_DECIMAL_TEXT = re.compile(r"-?[0-9]{1,15}\.[0-9]{1,8}", re.ASCII)
# By the words that snake case, camel case and points make of a name or a path.
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_OF_TIME = frozenset({"time", "date", "timestamp", "ts", "at", "when", "created", "updated"})
_OF_EVENT_TIME = frozenset({"timestamp", "time", "occurred", "created", "ts"})
_OF_ID = frozenset({"id", "uuid", "guid", "key", "number", "ref", "reference"})
_OF_ENTITY = frozenset(
    {"customer", "client", "user", "account", "card", "token", "payer", "payee", "beneficiary", "terminal", "merchant"}
    | {"device", "ip", "email", "iban", "phone", "address"}
)
# Since 1970, of the years 2001 to 2096.
_EPOCHS = {
    unit: (10**9 * scale, 4 * 10**9 * scale) for unit, scale in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9))
}


class InferenceError(NightjarError):
    """No declaration can be made of the examples."""


@dataclass
class _Found:
    """The values at one path."""

    path: FieldPath
    present: int = 0
    nulls: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    """number, text, boolean, object, list."""
    whole: int = 0
    """Numbers without a point and an exponent."""
    digits: int = 0
    """The most before the point of a number."""
    decimals: int = 0
    """The most after it; of one with an exponent more than a decimal has."""
    epochs: Counter[str] = field(default_factory=Counter)
    times: int = 0
    """Texts that are ISO 8601 with a zone."""
    local_times: int = 0
    decimal_texts: int = 0
    values: set[str] = field(default_factory=set)

    def add(self, value: Any) -> None:
        self.present += 1
        if value is None:
            self.nulls += 1
        elif isinstance(value, JsonNumber):
            self.kinds["number"] += 1
            self._add_number(value)
        elif isinstance(value, str):
            self.kinds["text"] += 1
            self.times += parse_timestamp(value, zone_required=True) is not None
            self.local_times += _LOCAL_TIME.fullmatch(value) is not None
            self.decimal_texts += _DECIMAL_TEXT.fullmatch(value) is not None
        else:
            self.kinds["boolean" if isinstance(value, bool) else "list" if isinstance(value, list) else "object"] += 1
        if isinstance(value, str):
            self.values.add(value)

    def _add_number(self, number: str) -> None:
        before, _, after = number.lstrip("-").partition(".")
        has_exponent = "e" in number.lower()
        self.whole += not after and not has_exponent
        self.digits = max(self.digits, len(before))
        self.decimals = max(self.decimals, MAX_PRECISION + 1 if has_exponent else len(after))
        size = float(number)
        self.epochs.update(unit for unit, (least, most) in _EPOCHS.items() if least <= size < most)

    @property
    def known(self) -> int:
        return self.present - self.nulls

    @property
    def key(self) -> str:
        return self.path.key

    @property
    def is_mixed(self) -> bool:
        """Whether it is more than one of a value, an object and a list."""
        return len({kind if kind in ("object", "list") else "value" for kind in self.kinds}) > 1


@dataclass(frozen=True)
class _Field:
    """A proposed field. keys: of its declaration, as TOML values; doubts: for the reader."""

    name: str
    found: _Found
    keys: dict[str, Any]
    doubts: list[str]

    @property
    def kind(self) -> str:
        return str(self.keys["type"])

    def line(self, records: int) -> str:
        """Its declaration, and what is to be known about it."""
        written = ", ".join(f"{key} = {_toml(value)}" for key, value in self.keys.items())
        written = _toml(self.kind) if self.keys.keys() == {"type"} else f"{{{written}}}"
        notes = [f"absent in {_share(records - self.found.present, records)}"] if self.found.present < records else []
        notes += [f"NULL in {_share(self.found.nulls, records)}"] if self.found.nulls else []
        notes += self.doubts
        return f"{self.name} = {written}" + (f"  # {'; '.join(notes)}" if notes else "")


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
    if not STREAM_NAME.fullmatch(name):
        remedy = "Give --name with lower-case letters, digits and _, as in card_payments"
        raise InferenceError("is not the name of a stream", where=name, remedy=remedy)
    objects = [found for found in map(_object, records) if found is not None]
    if not objects:
        what = f"none of {len(records):,} records is a JSON object" if records else "there are no records"
        remedy = "Give a topic of JSON objects, or a file with one in each line"
        if named := next((record for record in records if record.startswith(b"\0")), None):
            number = int.from_bytes(named[1:5], "big")
            remedy = f"They name schemas of a registry, as {number}: declare that schema's fields, and its format"
        raise InferenceError(what, where=name, remedy=remedy)
    fields, left_out = _fields(_leaves(objects), len(objects))
    event_id, event_time = _event_id(fields, len(objects)), _event_time(fields, len(objects))
    fields = [replace(each, keys={**each.keys, "type": "string"}) if each.name == event_id else each for each in fields]
    entities = _entities(fields, event_id)
    lines = [f"# Examples: {len(objects):,}. What is guessed is marked with a question mark.", f"[streams.{name}]"]
    lines += [f"topic = {_toml(topic)}"]
    lines += [
        f'event_id = "{event_id}"  # ? it differs in each of these records'
        if event_id
        else 'event_id = ""  # ? no field that every record has differs in each of them: name one, or send one'
    ]
    lines += [
        f'event_time = "{event_time}"  # ? {_other_times(fields, event_time)}'
        if event_time
        else 'event_time = ""  # ? no field that every record has is a time'
    ]
    lines += [f"entities = {_toml(entities)}  # ? what rules group by most"]
    lines += ['allowed_lateness = "10m"', 'max_future_skew = "1m"', "", f"[streams.{name}.fields]"]
    lines += [each.line(len(objects)) for each in fields] + [f"# left out: {each}" for each in left_out]
    text = "\n".join(lines) + "\n"
    return text + (_tried(text, name, records) if event_id and event_time else "")


def _object(record: bytes) -> dict[str, Any] | None:
    try:
        found = read_json(record.decode("utf-8"))
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _leaves(objects: Iterable[dict[str, Any]]) -> list[_Found]:
    """What is at each path, in the order in which the records have them; at least that of scalars."""
    found: dict[tuple[str | int, ...], _Found] = {}

    def visit(value: Any, steps: tuple[str | int, ...]) -> None:
        if steps:
            found.setdefault(steps, _Found(FieldPath(steps))).add(value)
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


def _fields(leaves: Sequence[_Found], records: int) -> tuple[list[_Field], list[str]]:
    """The fields, and of the other leaves what is wrong with them."""
    fields: list[_Field] = []
    left_out: list[str] = []
    names = _names(leaves)
    for found in leaves:
        shown = shortened(printable(str(found.path)), 80)
        if not _can_be_declared(found.path):
            left_out.append(f"{shown}, whose name has a quote or no valid characters")
        elif not found.known:
            left_out.append(f"{shown}, which is NULL in all records")
        elif found.kinds.keys() <= {"object", "list"}:
            left_out.append(f"{shown}, which is empty in all records, or too deep")
        elif found.is_mixed:
            left_out.append(f"{shown}, which is a value, an object or a list in different records")
        elif len(fields) == MOST_FIELDS:
            left_out.append("all further ones")
            break
        else:
            fields.append(_field(names[found.path], found, records))
    return fields, left_out


def _can_be_declared(path: FieldPath) -> bool:
    try:
        return FieldPath.parse(str(path)) == path
    except DeclarationError:
        return False


def _names(leaves: Iterable[_Found]) -> dict[FieldPath, str]:
    """A name for each, the outermost first: those keep the key that they have."""
    names: dict[FieldPath, str] = {}
    taken: set[str] = set()
    for found in sorted(leaves, key=lambda found: len(found.path.steps)):
        names[found.path] = _name(found.path, taken)
        taken.add(names[found.path].lower())
    return names


def _name(path: FieldPath, taken: set[str]) -> str:
    """The last key as a name, with those before it where it is taken."""
    keys = [re.sub(r"[^A-Za-z0-9_]+", "_", step).strip("_") for step in path.steps if isinstance(step, str)]
    for count in range(1, len(keys) + 1):
        name = "_".join(filter(None, keys[-count:]))[-60:]
        if name[:1].isdigit():
            name = f"_{name}"
        if is_usable_name(name) and name.lower() not in taken and name.lower() not in RESERVED_FIELDS:
            return name
    base = (re.sub(r"[^A-Za-z0-9_]+", "_", "_".join(keys)).strip("_") or "field")[-50:]
    number = 2
    while not is_usable_name(f"f_{base}_{number}") or f"f_{base}_{number}".lower() in taken:
        number += 1
    return f"f_{base}_{number}"


def _field(name: str, found: _Found, records: int) -> _Field:
    keys, doubts = _typed(found)
    if found.path != FieldPath((name,)):
        keys["from"] = str(found.path)
    if found.present < records:
        keys["optional"] = True
    if 0 in found.path.steps:
        doubts.append("? the first of a list")
    return _Field(name, found, keys, doubts)


def _typed(found: _Found) -> tuple[dict[str, Any], list[str]]:
    """The keys `type`, `unit` and `zone`, and doubts."""
    known, kinds = found.known, found.kinds
    if kinds.keys() == {"boolean"}:
        return {"type": "boolean"}, []
    if kinds.keys() == {"number"}:
        return _number(found)
    if found.times == known:
        return {"type": "timestamp"}, []
    if kinds["text"] == known and found.times + found.local_times == known:
        return {"type": "timestamp", "zone": "UTC"}, ["? times without a zone: say which it is"]
    if kinds.keys() <= {"text", "number"} and _words(found.key) & _OF_TIME and found.times + kinds["number"] == known:
        unit = next((unit for unit, many in found.epochs.items() if many == kinds["number"]), None)
        if unit is not None:
            return {"type": "timestamp", "unit": unit}, [f"? {unit} since 1970, or text"]
    if kinds["text"] == known and found.decimal_texts == known:
        return {"type": "string"}, ['? numbers in quotes: "decimal(12,2)" takes them too']
    if len(kinds) > 1:
        return {"type": "string"}, [f"? {' and '.join(sorted(kinds))}: a string takes the texts of all"]
    return {"type": "string"}, []


def _number(found: _Found) -> tuple[dict[str, Any], list[str]]:
    unit = next((unit for unit, many in found.epochs.items() if many == found.known), None)
    if unit is not None and _words(found.key) & _OF_TIME:
        return {"type": "timestamp", "unit": unit}, [f"? {unit} since 1970"]
    doubts = [f"? {unit} since 1970, if it is a time"] if unit is not None else []
    if found.whole == found.known:
        if found.digits < MAX_PRECISION + 1:
            return {"type": "int64"}, doubts
        return {"type": "string"}, [*doubts, "? numbers of so many digits are ids"]
    scale = max(2, found.decimals)
    precision = max(12, found.digits + scale + 2)
    if found.decimals <= 4 and precision <= MAX_PRECISION:
        return {"type": f"decimal({precision},{scale})"}, doubts
    return {"type": "double"}, doubts


def _event_id(fields: Sequence[_Field], records: int) -> str | None:
    """The outermost field that differs in each record, one with the name of an id before others."""
    candidates = [
        each
        for each in fields
        if each.kind in (Kind.STRING, Kind.INT64)
        and each.found.known == records
        and len(each.found.values) == records
        and "" not in each.found.values
    ]
    return next((each.name for each in sorted(candidates, key=lambda each: _preference(each, _OF_ID))), None)


def _preference(of: _Field, names: frozenset[str]) -> tuple[bool, int]:
    return not _words(of.found.key) & names, len(of.found.path.steps)


def _words(text: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORDS.findall(text))


def _event_time(fields: Sequence[_Field], records: int) -> str | None:
    times = [each for each in fields if each.kind == Kind.TIMESTAMP and each.found.known == records]
    return next((each.name for each in sorted(times, key=lambda each: _preference(each, _OF_EVENT_TIME))), None)


def _other_times(fields: Iterable[_Field], chosen: str) -> str:
    others = [each.name for each in fields if each.kind == Kind.TIMESTAMP and each.name != chosen]
    return f"other times are {', '.join(others)}" if others else "the only time that every record has"


def _entities(fields: Sequence[_Field], event_id: str | None) -> list[str]:
    """Two fields at most that repeat and whose names are of somebody or something."""
    others = [each for each in fields if each.name != event_id]
    strings = [each for each in others if each.kind == Kind.STRING]
    named = [
        each for each in others if each.kind in (Kind.STRING, Kind.INT64) and _words(str(each.found.path)) & _OF_ENTITY
    ]
    repeated = [each for each in (*named, *strings) if 1 < len(each.found.values) < each.found.known]
    chosen = [each for each in named if each in repeated] or named or repeated or strings
    return [each.name for each in chosen[:2]] or ([event_id] if event_id else [])


def _tried(text: str, name: str, records: Sequence[bytes]) -> str:
    """What the declaration makes of the records, as comments."""
    stream: Stream = streams_from_mapping(tomllib.loads(text)["streams"], "declaration")[name]
    refused: Counter[str] = Counter()
    for record in records:
        event = parse_event(record, stream)
        if isinstance(event, Rejection):
            refused[event.reason.value] += 1
    used = len(records) - refused.total()
    lines = [f"# {used:,} of {len(records):,} records are events by this declaration."]
    lines += [f"# {many:,} {reason}" for reason, many in refused.most_common()]
    return "\n".join(lines) + "\n"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if part / whole >= 0.001 else f"{part} of {whole:,}"


def _toml(value: Any) -> str:
    """A value as TOML, in printable characters."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return '"' + "".join(map(_toml_character, value)) + '"'
        case _:
            return f"[{', '.join(map(_toml, value))}]"


def _toml_character(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08x}"
