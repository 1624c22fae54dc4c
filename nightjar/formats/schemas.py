"""The schemas that records name by their ids, kept beside the lake.

The stream and the night must read the same bytes as the same events, also after a crash and years later, so what the
registry once answered is kept and counts for ever: a folder for each id, with a file for each answer, numbered from 0.
An answer is the schema, or that the id was unknown when a record with it came. Then it is unknown for records that
arrive until some time later, at first a minute and each time twice as long up to ten, and for later ones the registry
is asked again. A file is only ever created, so that of several processes that ask at once the first one's answer is
all's.
"""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass
from typing import Any

import structlog

from nightjar.formats.avro import AvroSchema
from nightjar.formats.errors import RegistryError, SchemaError
from nightjar.formats.protobuf import ProtobufSchema, compiled
from nightjar.formats.registry import RegisteredSchema, Registry
from nightjar.rules.encodings import Format
from nightjar.rules.timestamps import MIN_TIMESTAMP
from nightjar.storage.paths import AnyPath, create_whole, names_in

# For how long (µs) an id is taken for unknown after the first answer that it is, and at most.
_UNKNOWN_FOR, _UNKNOWN_FOR_AT_MOST = 60_000_000, 600_000_000
# Whoever may write to a topic can make up ids: of more than this many none is asked for, which is looked at once in so
# many seconds.
_MOST_IDS = 2_000
_FULL_SECONDS = 60.0
# Registries count so far.
_MOST_ID = (1 << 31) - 1

_log = structlog.get_logger(__name__)

Schema = AvroSchema | ProtobufSchema


@dataclass(frozen=True)
class Unusable:
    """Why the schema that a record names cannot be used."""

    reason: str


@dataclass(frozen=True)
class Schemas:
    """Schemas by id. folder: where they are kept."""

    folder: AnyPath
    registry: Registry

    def find(self, number: int, arrival: int, form: Format) -> Schema | Unusable:
        """The schema with this id, for a record that arrived then (µs).

        Raises:
            RegistryError: it is not kept, and the registry cannot be asked.
        """
        if number > _MOST_ID:
            return Unusable(f"no registry has a schema {number}")
        key = str(self.folder), number, form
        known = _KNOWN.get(key) or _KNOWN.setdefault(key, _Answers(number, form))
        while (found := known.at(arrival)) is None:
            answer = self._answer(number, known.count, arrival)
            if answer is None:
                _KNOWN.pop(key, None)
                return Unusable(f"schema {number} is not asked for: records have named {_MOST_IDS:,} others")
            known.add(answer)
        return found

    def since(self, number: int, form: Format) -> int:
        """Later arrivals (µs) have the schema with this id that `find` has returned."""
        until = _KNOWN[str(self.folder), number, form].unknown_until
        return MIN_TIMESTAMP if until is None else until

    def _answer(self, number: int, at: int, arrival: int) -> dict[str, Any] | None:
        """The answer with this number about an id; None if no further id is asked for."""
        file = self.folder / str(number) / f"{at}.json"
        if not file.is_file():
            if at == 0 and self._is_full():
                return None
            create_whole(file, json.dumps(self._asked(number, at, arrival)).encode())
        try:
            answer = json.loads(file.read_bytes())
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            remedy = "Restore it from a copy of the lake; the registry's answer may be another one today"
            raise RegistryError("what was kept of a schema is damaged", where=str(file), remedy=remedy)
        return answer

    def _is_full(self) -> bool:
        looked = _FULL.get(str(self.folder))
        if looked is not None and time.monotonic() - looked < _FULL_SECONDS:
            return True
        if len(names_in(self.folder)) < _MOST_IDS:
            return False
        _FULL[str(self.folder)] = time.monotonic()
        _log.warning("schemas_not_asked_for", ids=_MOST_IDS, folder=str(self.folder))
        return True

    def _asked(self, number: int, at: int, arrival: int) -> dict[str, Any]:
        try:
            registered = self.registry.schema(number)
        except SchemaError as refusal:
            _log.warning("schema_incomplete", schema=number, registry=self.registry.url, reason=refusal.what)
            registered = None
        if registered is None:
            _log.warning("schema_unknown", schema=number, registry=self.registry.url)
            return {_UNTIL: arrival + min(_UNKNOWN_FOR << min(at, 20), _UNKNOWN_FOR_AT_MOST)}
        return _kept(registered)


class _Answers:
    """What is known about an id in this process."""

    def __init__(self, number: int, form: Format) -> None:
        self._number, self._form = number, form
        self.unknown_until: int | None = None
        """Records that arrived by then (µs) have a schema that was unknown."""
        self._schema: Schema | Unusable | None = None
        self.count = 0

    def at(self, arrival: int) -> Schema | Unusable | None:
        """For a record that arrived then; None if that is not known yet."""
        if self.unknown_until is not None and arrival <= self.unknown_until:
            return Unusable(f"the registry has no schema {self._number}")
        return self._schema

    def add(self, answer: dict[str, Any]) -> None:
        """Add the next answer."""
        self.count += 1
        if _UNTIL in answer:
            self.unknown_until = max(answer[_UNTIL], self.unknown_until or 0)
            return
        try:
            self._schema = _usable(answer, self._form)
        except SchemaError as refusal:
            self._schema = Unusable(f"schema {self._number} {refusal.what}")


# Of this process, by folder, id and format.
_KNOWN: dict[tuple[str, int, Format], _Answers] = {}
# When a folder was seen to have as many ids as there may be, by time.monotonic.
_FULL: dict[str, float] = {}

_UNTIL = "unknown_until"


def _kept(registered: RegisteredSchema) -> dict[str, Any]:
    """The file's content about a schema. Of Protobuf it has the compiled form too, for which a process is started."""
    kept = {"format": registered.format, "schema": registered.text, "references": registered.references}
    if registered.format is Format.PROTOBUF:
        try:
            kept["descriptors"] = base64.b64encode(compiled(registered.text, registered.references)).decode()
        except SchemaError as refusal:
            kept["refusal"] = refusal.what
    return kept


def usable(registered: RegisteredSchema, form: Format) -> Schema:
    """A schema as the registry has it.

    Raises:
        SchemaError: it cannot be used, or not for this format.
    """
    return _usable(_kept(registered), form)


def _usable(answer: dict[str, Any], form: Format) -> Schema:
    if answer["format"] != form:
        raise SchemaError(f"is {answer['format']}, and the records of the stream are declared as {form}")
    if "refusal" in answer:
        raise SchemaError(answer["refusal"])
    if form is Format.AVRO:
        return AvroSchema(answer["schema"], list(answer["references"].values()))
    return ProtobufSchema(base64.b64decode(answer["descriptors"]))
