"""Great Expectations, imported without what the gate has no use for.

How it works: `scipy.stats` and `altair`, a third of the import, serve two of the library's own expectations. They come
as modules that are executed when somebody first looks into them, which nobody does here.
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
    """Finds the modules as everybody does, and puts off executing them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname in _RARELY_USED else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


@contextmanager
def _put_off() -> Iterator[None]:
    finder = _Later()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def bring() -> None:
    """Import Great Expectations, and what of ours is made of it; seconds of a core, once a process."""
    with _put_off():
        import great_expectations
        import great_expectations.render.renderer.site_builder  # noqa: F401

        import expectations.rows  # noqa: F401
