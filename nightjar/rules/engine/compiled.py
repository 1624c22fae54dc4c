"""The decorator of kernels: functions that Numba compiles at their first call and keeps on disk.

Numba considers a cached function current as long as the function's own file has not changed. But compiled code contains
the functions that it calls: after an update that changes one of these, in another file, the old one would still run.
So a kernel is compiled again once any file that has one changes.

To compile all of them takes minutes of one core. Processes that miss the same ones at the same time, as the workers of
a job that starts do, compile each once: the first does, and the others wait for what it keeps.
"""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from numba import config, njit  # noqa: TID251  the one place
from numba.core import caching, event
from numba.core.compiler_lock import global_compiler_lock

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
    compiled = njit(cache=True, inline=inline)(function)
    compiled.compile = _one_at_a_time(compiled.compile, compiled._cache._impl)  # noqa: SLF001  Numba has no other way
    return compiled


def _one_at_a_time(compile_or_load: Callable[[Any], Any], kept: Any) -> Callable[[Any], Any]:
    """The method of a dispatcher, run by one process after the other. kept: where its function is kept on disk."""

    def compile(signature: Any) -> Any:  # noqa: A001  Numba's name
        # Numba's lock of threads comes first, as within a compilation that needs another kernel.
        with global_compiler_lock, _alone(kept.locator, kept.filename_base.partition(".")[0]):
            return compile_or_load(signature)

    return compile


_held: set[Path] = set()


@contextmanager
def _alone(locator: Any, module: str) -> Iterator[None]:
    """Let no other process compile or load kernels of this module. Modules do not import each other in a circle, so no
    two processes wait for each other. The caller has Numba's lock of threads."""
    file = Path(locator.get_cache_path(), f"{module}.lock")
    if file in _held:
        yield
        return
    with ExitStack() as after:
        with suppress(OSError):  # where nothing can be kept, or locked, there is nothing to wait for
            file.parent.mkdir(parents=True, exist_ok=True)
            # until it is closed, or the process ends
            fcntl.flock(after.enter_context(file.open("w")), fcntl.LOCK_EX)
        _held.add(file)
        after.callback(_held.remove, file)
        yield


class _Kernels:
    """Mixed into Numba's locators of what it keeps: they are for kernels, and for one state of all of them."""

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> Any:
        return super().from_function(py_func, py_file) if py_func in _kernels else None  # type: ignore[misc]

    def get_source_stamp(self) -> object:
        return sources()


class _ByContent(_Kernels):
    """For places outside the source: the same kernels have the same place wherever their source is, such as an archive
    that a cluster copies to a new folder for each executor."""

    def get_cache_path(self) -> str:
        package = Path(self._py_file).parent.name  # type: ignore[attr-defined]
        return str(Path(self._cache_path).parent / f"{package}_{sources().hex()[:16]}")  # type: ignore[attr-defined]


class Provided(_ByContent, caching.UserProvidedCacheLocator):  # type: ignore[misc]
    """In the folder NUMBA_CACHE_DIR."""


class InTree(_Kernels, caching.InTreeCacheLocator):  # type: ignore[misc]
    """Beside the source."""


class UserWide(_ByContent, caching.UserWideCacheLocator):  # type: ignore[misc]
    """In the user's folder for caches, if the source's cannot be written to."""


class InArchive(_ByContent, caching.ZipCacheLocator):  # type: ignore[misc]
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
