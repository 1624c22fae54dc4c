"""Canonical JSON: equal values have equal text, whoever wrote them."""

from __future__ import annotations

import json
from typing import Any


def canonical(value: Any) -> str:
    """The text of a JSON value: doubles in Python's shortest form, members in the given order, no spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def rewritten(text: str) -> str:
    """JSON text as `canonical` would have written it."""
    return canonical(json.loads(text))
