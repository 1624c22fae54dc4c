"""What an inferred declaration of a stream is written from: the values at each place, and the proposed fields."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from nightjar.rules.errors import DeclarationError, NightjarError, printable, shortened
from nightjar.rules.event_values import JsonNumber
from nightjar.rules.events import Rejection
from nightjar.rules.field_paths import FieldPath
from nightjar.rules.names import is_usable_name
from nightjar.rules.streams import RESERVED_FIELDS, STREAM_NAME, Stream, streams_from_mapping
from nightjar.rules.timestamps import parse_timestamp
from nightjar.rules.types import MAX_PRECISION, Kind

MOST_FIELDS = 200
_LOCAL_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?", re.ASCII)
_DECIMAL_TEXT = re.compile(r"-?[0-9]{1,15}\.[0-9]{1,8}", re.ASCII)
# By the words that snake case, camel case and points make of a name or a path.
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
OF_TIME = frozenset({"time", "date", "timestamp", "ts", "at", "when", "created", "updated"})
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
class Found:
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
class Field:
    """A proposed field. keys: of its declaration, as TOML values; doubts: for the reader; may_lack: whether its schema
    says that a record may have no value."""

    name: str
    found: Found
    keys: dict[str, Any]
    doubts: list[str]
    may_lack: bool = False

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


@dataclass(frozen=True)
class Draft:
    """What a declaration is written from. about: what it was made from; keys: of the stream, beside those that every
    stream has; left_out: of other values, why no field has them; examples: how many records there are."""

    name: str
    topic: str
    about: str
    fields: Sequence[Field]
    left_out: Sequence[str]
    examples: int
    keys: Mapping[str, Any] = field(default_factory=dict)


def check_name(name: str) -> None:
    """Check the name of a stream; InferenceError if none can have it."""
    if not STREAM_NAME.fullmatch(name):
        remedy = "Give --name with lower-case letters, digits and _, as in card_payments"
        raise InferenceError("is not the name of a stream", where=name, remedy=remedy)


def written(draft: Draft, read: Callable[[Stream], Sequence[dict[str, Any] | Rejection]]) -> str:
    """A declaration's text. read: what the declared stream makes of the examples."""
    event_id, event_time = _event_id(draft.fields, draft.examples), _event_time(draft.fields, draft.examples)
    fields = [_always_there(each, event_id) if each.name in (event_id, event_time) else each for each in draft.fields]
    entities = _entities(fields, event_id)
    known = "it differs in each of these records" if draft.examples else "by its name"
    lines = [f"# {draft.about} What is guessed is marked with a question mark.", f"[streams.{draft.name}]"]
    lines += [f"topic = {_toml(draft.topic)}"]
    lines += [f"{key} = {_toml(value)}" for key, value in draft.keys.items()]
    lines += [
        f'event_id = "{event_id}"  # ? {known}'
        if event_id
        else 'event_id = ""  # ? no field that every record has differs in each of them: name one, or send one'
    ]
    lines += [
        f'event_time = "{event_time}"  # ? {_other_times(fields, event_time)}'
        if event_time
        else 'event_time = ""  # ? no field that every record has is a time'
    ]
    lines += [f"entities = {_toml(entities)}  # ? what rules group by most"]
    lines += ['allowed_lateness = "10m"', 'max_future_skew = "1m"', "", f"[streams.{draft.name}.fields]"]
    lines += [each.line(draft.examples) for each in fields] + [f"# left out: {each}" for each in draft.left_out]
    text = "\n".join(lines) + "\n"
    return text + (_tried(text, draft.name, read) if event_id and event_time and draft.examples else "")


def _always_there(of: Field, event_id: str | None) -> Field:
    """As the field that is the event's id, a text, or its time."""
    keys = {"type": "string"} if of.name == event_id else {}
    return replace(of, keys={key: value for key, value in {**of.keys, **keys}.items() if key != "optional"})


def can_be_declared(path: FieldPath) -> bool:
    try:
        return FieldPath.parse(str(path)) == path
    except DeclarationError:
        return False


class _Place(Protocol):
    """What is known of a place in records."""

    @property
    def path(self) -> FieldPath:
        """The place."""


Place = TypeVar("Place", bound=_Place)


def chosen(
    places: Sequence[Place], refused: Callable[[Place], str | None], proposed: Callable[[str, Place], Field]
) -> tuple[list[Field], list[str]]:
    """The fields that a declaration has of these places, as many as it may have, and of others why they are none.

    refused: what follows its name where it is none; proposed: the field of that name.
    """
    fields: list[Field] = []
    left_out: list[str] = []
    names = named([place.path for place in places])
    for place in places:
        if (why := refused(place)) is not None:
            left_out.append(f"{shortened(printable(str(place.path)), 80)}, {why}")
        elif len(fields) == MOST_FIELDS:
            left_out.append("all further ones")
            break
        else:
            fields.append(proposed(names[place.path], place))
    return fields, left_out


def named(paths: Iterable[FieldPath]) -> dict[FieldPath, str]:
    """A name for the value at each, the outermost first: those keep the key that they have."""
    names: dict[FieldPath, str] = {}
    taken: set[str] = set()
    for path in sorted(paths, key=lambda path: len(path.steps)):
        names[path] = _name(path, taken)
        taken.add(names[path].lower())
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


def number(found: Found) -> tuple[dict[str, Any], list[str]]:
    unit = next((unit for unit, many in found.epochs.items() if many == found.known), None)
    if unit is not None and words(found.key) & OF_TIME:
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


def words(text: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORDS.findall(text))


def _event_id(fields: Sequence[Field], records: int) -> str | None:
    """The outermost field that differs in each record, one with the name of an id before others; without records only
    such a one."""
    candidates = [
        each
        for each in fields
        if each.kind in (Kind.STRING, Kind.INT64)
        and each.found.known == records
        and len(each.found.values) == records
        and "" not in each.found.values
        and (records or (not each.may_lack and words(each.found.key) & _OF_ID))
    ]
    return next((each.name for each in sorted(candidates, key=lambda each: _preference(each, _OF_ID))), None)


def _preference(of: Field, names: frozenset[str]) -> tuple[bool, int]:
    return not words(of.found.key) & names, len(of.found.path.steps)


def _event_time(fields: Sequence[Field], records: int) -> str | None:
    times = [
        each
        for each in fields
        if each.kind == Kind.TIMESTAMP and each.found.known == records and (records or not each.may_lack)
    ]
    return next((each.name for each in sorted(times, key=lambda each: _preference(each, _OF_EVENT_TIME))), None)


def _other_times(fields: Iterable[Field], chosen: str) -> str:
    others = [each.name for each in fields if each.kind == Kind.TIMESTAMP and each.name != chosen]
    return f"other times are {', '.join(others)}" if others else "the only time that every record has"


def _entities(fields: Sequence[Field], event_id: str | None) -> list[str]:
    """Two fields at most that repeat and whose names are of somebody or something."""
    others = [each for each in fields if each.name != event_id]
    strings = [each for each in others if each.kind == Kind.STRING]
    named = [
        each for each in others if each.kind in (Kind.STRING, Kind.INT64) and words(str(each.found.path)) & _OF_ENTITY
    ]
    repeated = [each for each in (*named, *strings) if 1 < len(each.found.values) < each.found.known]
    chosen = [each for each in named if each in repeated] or named or repeated or strings
    return [each.name for each in chosen[:2]] or ([event_id] if event_id else [])


def _tried(text: str, name: str, read: Callable[[Stream], Sequence[dict[str, Any] | Rejection]]) -> str:
    """What the declaration makes of the records, as comments."""
    stream: Stream = streams_from_mapping(tomllib.loads(text)["streams"], "declaration")[name]
    events = read(stream)
    refused = Counter(event.reason.value for event in events if isinstance(event, Rejection))
    used = len(events) - refused.total()
    lines = [f"# {used:,} of {len(events):,} records are events by this declaration."]
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
