"""Imports Great Expectations without the modules that the gate does not use.

How it works: `scipy.stats` and `altair` take a third of the import time but only serve two of the library's own
expectations. They are imported lazily: executed on first access, which never happens here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType

_RARELY_USED = frozenset({"altair", "scipy.stats"})


class _Later(MetaPathFinder):
    """Finds the modules as usual, and defers executing them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname in _RARELY_USED else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


@contextmanager
def _deferred() -> Iterator[None]:
    finder = _Later()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def load() -> None:
    """Import Great Expectations and our expectations based on it; takes seconds of a core, once per process."""
    with _deferred():
        import great_expectations
        import great_expectations.render.renderer.site_builder  # noqa: F401

        import nightjar.expectations.rows  # noqa: F401
