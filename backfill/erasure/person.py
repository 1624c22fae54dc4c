"""A person whose data is erased: how stored values are recognised as theirs, and masked.

A person is one or more values of declared fields (`customer_id` = C123). Values are compared as text, whole: C12 is not
C123. In text that has no structure a value counts where no letter or digit is next to it.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from nightjar.rules.canonical import canonical
from nightjar.rules.errors import SettingsError
from nightjar.rules.field_paths import ABSENT, BLOCKED, FieldPath
from nightjar.rules.masking import MASK

_BETWEEN_VALUES = ", "  # in a measure `values` (S2.4)
_WORD = re.compile(r"[^\s,;=()\[\]{}\"']+")


# Characters of a value that is hardly in a record by chance.
_TELLING = 4


@dataclass(frozen=True)
class Person:
    """keys: field to the values, as text, that are the person's in every stream that declares the field."""

    keys: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, keys: Iterable[str]) -> Person:
        """The person of some FIELD=VALUE texts.

        Raises:
            SettingsError: one is not of that form.
        """
        found: dict[str, tuple[str, ...]] = {}
        for key in keys:
            name, equals, value = key.partition("=")
            if not (name and equals and value.strip()):
                raise SettingsError("is not FIELD=VALUE", where="--key", remedy="Write --key customer_id=C123")
            found[name] = (*found.get(name, ()), value)
        return cls(found)

    @cached_property
    def values(self) -> frozenset[str]:
        """All values, of whichever field."""
        return frozenset(value for values in self.keys.values() for value in values)

    @cached_property
    def _anywhere(self) -> re.Pattern[str]:
        # JSON may write a character outside ASCII as an escape, and data docs some as entities
        written = {form for value in self.values for form in (value, json.dumps(value)[1:-1], html.escape(value))}
        either = "|".join(re.escape(form) for form in sorted(written, key=len, reverse=True))
        return re.compile(rf"(?<![^\W_])(?:{either})(?![^\W_])", re.IGNORECASE)

    def named_in(self, text: str) -> bool:
        """Whether a text without structure has one of the values."""
        return self._anywhere.search(text) is not None

    def masked_in(self, text: str, ids: frozenset[str] = frozenset()) -> str:
        """The text with MASK in the place of the values, and of words that are one of the ids."""
        text = self._anywhere.sub(MASK, text)
        return _WORD.sub(lambda word: MASK if word[0] in ids else word[0], text) if ids else text

    def is_about(self, record: bytes, places: Mapping[str, Iterable[FieldPath]] | None = None) -> bool:
        """Whether a record, which may not be JSON, is the person's: by its key fields, or else by any of its values.

        places: where records may have each of the fields; None: at the key of its name.
        """
        try:
            written = json.loads(record)
        except (ValueError, RecursionError):
            return self._is_within(record.decode(errors="replace"))
        if isinstance(written, dict):
            named = [(name, value) for name in self.keys for value in _scalars(written, name, places)]
            if named:
                return any(str(value) in self.keys[name] for name, value in named)
        return any(str(leaf) in self.values for leaf in _leaves(written))

    def _is_within(self, text: str) -> bool:
        """Whether what is not JSON may have one of the values: in Avro anything may stand beside a text."""
        return self.named_in(text) or any(value in text for value in self.values if len(value) >= _TELLING)

    def masked_json(self, text: str, ids: frozenset[str] = frozenset()) -> str:
        """A JSON text with MASK for each of the values, and of the ids, that is a string in it or part of a measure's
        list; the text itself where there is none."""
        written = json.loads(text)
        masked = _masked(written, self.values | ids)
        return text if masked == written else canonical(masked)


def _scalars(record: dict[str, Any], name: str, places: Mapping[str, Iterable[FieldPath]] | None) -> Iterator[Any]:
    """The values of a field in a record."""
    for path in [FieldPath((name,))] if places is None else places.get(name, ()):
        value = path.value(record)
        if not isinstance(value, dict | list) and value not in (ABSENT, BLOCKED):
            yield value


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for each in value.values():
            yield from _leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each)
    else:
        yield value


def _masked(value: Any, hidden: frozenset[str]) -> Any:
    if isinstance(value, Mapping):
        return {name: _masked(each, hidden) for name, each in value.items()}
    if isinstance(value, list):
        return [_masked(each, hidden) for each in value]
    if not isinstance(value, str):
        return value
    return (
        MASK
        if value in hidden
        else _BETWEEN_VALUES.join(MASK if part in hidden else part for part in value.split(_BETWEEN_VALUES))
    )
