"""Confluent's wire format: before a record a zero byte and the id of its schema, and in Protobuf the message's place in
that schema. Its numbers are written as Avro writes a long.
"""

from __future__ import annotations

import io

import fastavro
from google.protobuf.descriptor import Descriptor

from nightjar.formats.errors import UndecodableError

_MAGIC = b"\0"
HEADER_BYTES = 5
_MAX_STEPS = 20
_NUMBER = fastavro.parse_schema("long")


def header(number: int) -> bytes:
    """What stands before a record with this schema."""
    return _MAGIC + number.to_bytes(HEADER_BYTES - len(_MAGIC), "big")


def schema_of(raw: bytes) -> int | None:
    """The id of a record's schema; None if it has no header."""
    if len(raw) < HEADER_BYTES or not raw.startswith(_MAGIC):
        return None
    return int.from_bytes(raw[len(_MAGIC) : HEADER_BYTES], "big")


def place_in(raw: bytes) -> tuple[tuple[int, ...], int]:
    """The place of a record's message in its schema, an index a step, and where the message begins.

    Raises:
        UndecodableError: there is none.
    """
    source = io.BytesIO(raw)
    source.seek(HEADER_BYTES)
    try:
        count = _read(source)
        # 0 is short for the first message
        if not 0 <= count <= _MAX_STEPS:
            raise UndecodableError("the message's place in its schema is not one")
        steps = tuple(_read(source) for _ in range(count)) or (0,)
    except (EOFError, IndexError):
        raise UndecodableError("it ends within the message's place in its schema") from None
    return steps, source.tell()


def place_of(message: Descriptor) -> bytes:
    """A message's place in its schema, as `place_in` reads it."""
    steps: list[int] = []
    within: Descriptor | None = message
    while within is not None:
        around = within.containing_type
        siblings = within.file.message_types_by_name.values() if around is None else around.nested_types
        steps.insert(0, list(siblings).index(within))
        within = around
    target = io.BytesIO()
    for number in [0] if steps == [0] else [len(steps), *steps]:
        fastavro.schemaless_writer(target, _NUMBER, number)
    return target.getvalue()


def _read(source: io.BytesIO) -> int:
    return int(fastavro.schemaless_reader(source, _NUMBER, None))  # type: ignore[arg-type]
