"""The decorator of kernels: functions that Numba compiles at their first call and keeps on disk.

Numba considers a cached function current as long as the function's own file has not changed. But compiled code contains
the functions that it calls: after an update that changes one of these, in another file, the old one would still run.
So a kernel is compiled again once any file that has one changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from numba import config, njit  # noqa: TID251  the one place
from numba.core import caching, event

_NUMBAS = (
    "UserProvidedCacheLocator",
    "InTreeCacheLocator",
    "UserWideCacheLocator",
    "IPythonCacheLocator",
    "ZipCacheLocator",
)
_kernels: set[Callable[..., Any]] = set()


def kernel(function: Callable[..., Any] | None = None, *, inline: str = "never") -> Any:
    """Compile the function, to machine code for each combination of its arguments' types.

    inline: "always" for what is called from inner loops with arrays, to each of which a call counts references.
    """
    if function is None:
        return lambda decorated: kernel(decorated, inline=inline)
    _kernels.add(function)
    return njit(cache=True, inline=inline)(function)


class _Kernels:
    """Mixed into Numba's locators of what it keeps: they are for kernels, and for one state of all of them."""

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> Any:
        return super().from_function(py_func, py_file) if py_func in _kernels else None  # type: ignore[misc]

    def get_source_stamp(self) -> object:
        return super().get_source_stamp(), sources()  # type: ignore[misc]


class Provided(_Kernels, caching.UserProvidedCacheLocator):  # type: ignore[misc]
    """In the folder NUMBA_CACHE_DIR."""


class InTree(_Kernels, caching.InTreeCacheLocator):  # type: ignore[misc]
    """Beside the source."""


class UserWide(_Kernels, caching.UserWideCacheLocator):  # type: ignore[misc]
    """In the user's folder for caches, if the source's cannot be written to."""


class InArchive(_Kernels, caching.ZipCacheLocator):  # type: ignore[misc]
    """The same, if the source is in an archive."""


# The first that has a place for a function is taken; other libraries' functions are left to Numba's own.
config.CACHE_LOCATOR_CLASSES = ",".join(
    [
        *(f"{__name__}.{locator.__name__}" for locator in (Provided, InTree, UserWide, InArchive)),
        config.CACHE_LOCATOR_CLASSES or ",".join(_NUMBAS),
    ]
)


@cache
def sources() -> bytes:
    """A hash of all files of the engine that have kernels, and of the one that has their codes."""
    rules = resources.files("nightjar.rules")
    digest = hashlib.sha256((rules / "functions.py").read_bytes())
    for source in _files(rules / "engine"):
        if b"\n@kernel" in source:
            digest.update(hashlib.sha256(source).digest())
    return digest.digest()


def _files(folder: Traversable) -> Iterator[bytes]:
    for each in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if each.name.endswith(".py"):
            yield each.read_bytes()
        elif each.name != "__pycache__" and each.is_dir():  # where the compiled code is: hundreds of files
            yield from _files(each)


class _Once(event.Listener):  # type: ignore[misc]
    def __init__(self, notice: Callable[[], object]) -> None:
        self._notice: Callable[[], object] | None = notice

    def on_start(self, event: Any) -> None:
        if self._notice is not None and event.data["dispatcher"].py_func in _kernels:
            notice, self._notice = self._notice, None
            notice()

    def on_end(self, event: Any) -> None:
        """Nothing: other kernels follow."""


def on_compiling(notice: Callable[[], object]) -> None:
    """Call `notice` once, as soon as a kernel has to be compiled because none is kept on disk, which takes seconds."""
    event.register("numba:compile", _Once(notice))
