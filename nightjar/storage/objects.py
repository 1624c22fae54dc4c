"""An object or a folder of objects in an object store, with the part of pathlib's interface that is used here.

A write is one request, or an upload in parts that counts once it is whole, so an object is complete or absent, and
everybody sees it at once. A folder is the objects whose keys begin with its own; it exists as long as one of them
does. An object without content is not listed: Hadoop writes such as marks of folders, and stores with folders of their
own list them like that.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING

from nightjar.rules.errors import NightjarError
from nightjar.storage.access import Access

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import AzureStore, GCSStore, S3Store


class StorageError(NightjarError):
    """The object store refuses a request, or does not respond."""


# How stores call a bucket that there is not; not all say so by a kind of error of its own.
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist")


@dataclass(frozen=True)
class ObjectPath:
    """access: of its bucket. key: of the object, or of what its objects' keys begin with. Immutable, without secrets;
    sorted by the URL."""

    access: Access
    key: str

    def __str__(self) -> str:
        return f"{self.access.root}/{self.key}"

    def __lt__(self, other: ObjectPath) -> bool:
        return str(self) < str(other)

    def __truediv__(self, name: str) -> ObjectPath:
        return self._at("/".join(part for part in (self.key, *str(name).split("/")) if part))

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition("/")[2]

    @property
    def stem(self) -> str:
        """The name without what follows its last dot."""
        return self.name.rpartition(".")[0] or self.name

    @property
    def suffix(self) -> str:
        """The last dot of the name and what follows it; empty where there is none."""
        return self.name.removeprefix(self.stem)

    @property
    def parent(self) -> ObjectPath:
        """The folder it is in."""
        return self._at(self.key.rpartition("/")[0])

    def with_name(self, name: str) -> ObjectPath:
        """Its neighbour of this name."""
        return self.parent / name

    def relative_to(self, other: ObjectPath) -> str:
        """The rest of the key below a folder."""
        return self.key.removeprefix(f"{other.key}/")

    def resolve(self) -> ObjectPath:
        """Itself: a URL is never relative."""
        return self

    def exists(self) -> bool:
        """Whether it is an object or a folder."""
        return self.is_file() or self.is_dir()

    def is_file(self) -> bool:
        """Whether it is an object."""
        import obstore

        with _explained(self):
            try:
                obstore.head(self._store, self.key)
            except FileNotFoundError:
                return False
        return True

    def is_dir(self) -> bool:
        """Whether there are objects below it."""
        return any(True for _ in self._listed())

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Nothing: a folder is there with its first object."""

    def iterdir(self) -> Iterator[ObjectPath]:
        """The objects and folders directly in this folder."""
        import obstore

        with _explained(self):
            found = obstore.list_with_delimiter(self._store, self._prefix)
        for key in (*found["common_prefixes"], *_keys(found["objects"])):
            yield self._at(key.rstrip("/"))

    def glob(self, pattern: str) -> Iterator[ObjectPath]:
        """What is directly in this folder and has such a name."""
        return (each for each in self.iterdir() if fnmatch.fnmatchcase(each.name, pattern))

    def rglob(self, pattern: str) -> Iterator[ObjectPath]:
        """The objects below this folder with such a name."""
        return (each for each in self._listed() if fnmatch.fnmatchcase(each.name, pattern))

    def after(self, name: str) -> Iterator[ObjectPath]:
        """The objects below this folder whose names sort after this one."""
        return self._listed(offset=f"{self._prefix}{name}")

    def changed_at(self) -> datetime | None:
        """When the object, or one below this folder, was written last, by the store's clock; None if there is none."""
        import obstore

        with _explained(self):
            batches = obstore.list(self._store, self._prefix)
            below = max((each["last_modified"] for batch in batches for each in batch), default=None)
            try:
                return below or obstore.head(self._store, self.key)["last_modified"]
            except FileNotFoundError:
                return None

    def read_bytes(self) -> bytes:
        """The object's content.

        Raises:
            FileNotFoundError: there is no such object.
        """
        import obstore

        with _explained(self):
            return bytes(obstore.get(self._store, self.key).bytes())

    def read_text(self, encoding: str = "utf-8") -> str:
        """The object's content as text."""
        return self.read_bytes().decode(encoding)

    def write_bytes(self, content: bytes) -> None:
        """Write the object, whole; it replaces what was there."""
        import obstore

        with _explained(self):
            obstore.put(self._store, self.key, content)

    def write_text(self, content: str, encoding: str = "utf-8") -> None:
        """Write the object as text."""
        self.write_bytes(content.encode(encoding))

    def create(self, content: bytes) -> bool:
        """Write the object unless there is one; returns whether this process has, of all that try."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        with _explained(self):
            try:
                obstore.put(self._store, self.key, content, mode="create")
            except AlreadyExistsError:
                return False
        return True

    def unlink(self, *, missing_ok: bool = False) -> None:  # noqa: ARG002  not every store tells whether there was one
        """Remove the object, if there is one."""
        import obstore

        with _explained(self), suppress(FileNotFoundError):
            obstore.delete(self._store, self.key)

    def remove_tree(self) -> None:
        """Remove all objects below this folder."""
        import obstore

        # some stores end the request at an object that another process has removed meanwhile
        while keys := [each.key for each in self._listed()]:
            with _explained(self), suppress(FileNotFoundError):
                obstore.delete(self._store, keys)
                return

    @property
    def _prefix(self) -> str:
        return f"{self.key}/" if self.key else ""

    def _at(self, key: str) -> ObjectPath:
        return ObjectPath(self.access, key)

    @property
    def _store(self) -> S3Store | AzureStore | GCSStore:
        return _store(self.access, self._credentials_changed, os.getpid())

    @property
    def _credentials_changed(self) -> int:
        file = self.access.credentials_file
        return os.stat(file).st_mtime_ns if file and os.path.exists(file) else 0  # noqa: PTH110, PTH116  half the time

    def _listed(self, offset: str | None = None) -> Iterator[ObjectPath]:
        import obstore

        with _explained(self):
            for batch in obstore.list(self._store, self._prefix, offset=offset):
                yield from (self._at(key) for key in _keys(batch))


def _keys(listed: Iterable[ObjectMeta]) -> Iterator[str]:
    return (each["path"] for each in listed if each["size"])


@lru_cache(maxsize=8)
def _store(access: Access, credentials: int, process: int) -> S3Store | AzureStore | GCSStore:  # noqa: ARG001
    """A client. credentials: when they changed; process: its id, as a client's threads do not survive a fork."""
    return access.client()


@contextmanager
def _explained(place: ObjectPath) -> Iterator[None]:
    """Raise what the client raises as our own, except for FileNotFoundError."""
    from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

    try:
        yield
    except FileNotFoundError as failure:
        if _is_no_bucket(failure):
            raise _no_bucket(place) from None
        raise
    except (PermissionDeniedError, UnauthenticatedError):
        raise StorageError(
            "the object store denies access",
            where=str(place),
            remedy="Check the credentials (storage_options: credentials_file, or the environment's), and that they may "
            "list, read, write and delete objects there",
        ) from None
    except BaseError as failure:
        if _is_no_bucket(failure):
            raise _no_bucket(place) from None
        raise StorageError(
            f"the object store does not do what was asked: {str(failure).partition(' Debug source')[0].strip()[:500]}",
            where=str(place),
            remedy="Check storage_options, and that the store is up",
        ) from failure


def _is_no_bucket(failure: Exception) -> bool:
    return any(text in str(failure) for text in _NO_BUCKET)


def _no_bucket(place: ObjectPath) -> StorageError:
    return StorageError(
        "there is no such bucket or container", where=str(place), remedy="Create it; nightjar creates none"
    )
