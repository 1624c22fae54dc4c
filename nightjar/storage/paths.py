"""Places of files: a path, which is used as it is, or the URL of an object store."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from nightjar.rules.errors import SettingsError
from nightjar.storage.access import Access
from nightjar.storage.azure import AzureAccess
from nightjar.storage.google import GoogleAccess
from nightjar.storage.objects import ObjectPath
from nightjar.storage.s3 import S3Access

AnyPath: TypeAlias = Path | ObjectPath

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/")  # one slash: a Path merges two
_KINDS: tuple[type[Access], ...] = (S3Access, AzureAccess, GoogleAccess)
_STORES = {scheme: kind for kind in _KINDS for scheme in kind.schemes}
_SUPPORTED = (
    f"Give {', '.join(f'{kind.schemes[0]}://{kind.form}' for kind in _KINDS)} (s3a:// is the same as s3://) of a store "
    "with conditional writes; or a path (file:///folder is the same), on a cluster one that every machine mounts"
)
_NOT_SUPPORTED = {
    "hdfs": "hdfs: is not supported: the client by which writers take a lease and are fenced (obstore) has no "
    "conditional writes there, and delta-rs and Polars do not read it",
}


def checked(text: str) -> str:
    """A setting's path or URL as it is used: paths as they are, a file URL as its path, others without variants.

    Raises:
        ValueError: the URL cannot be used; the message names the scheme, and the remedy.
    """
    url = _URL.match(text)
    if not url:
        return text
    scheme = url["scheme"].lower()
    parts = urlsplit(text)
    if scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise ValueError(f"file: URLs name no host, and this one names {parts.netloc}: write file:///folder")
        return unquote(parts.path)
    kind = _STORES.get(scheme)
    if kind is None:
        raise ValueError(f"{_NOT_SUPPORTED.get(scheme, f'{scheme}: is not supported')}. {_SUPPORTED}")
    folder = parts.path.strip("/")
    if not kind.bucket_pattern.fullmatch(parts.netloc) or not folder or parts.query or parts.fragment or "//" in folder:
        raise ValueError(f"{scheme}: URLs have the form {scheme}://{kind.form}")
    return f"{kind.schemes[0]}://{parts.netloc}/{folder}"


def check_options(options: Mapping[str, str], places: Collection[str]) -> None:
    """Check the setting `storage_options` against the checked places that it is for; without any in an object store,
    against every kind of store.

    Raises:
        SettingsError: none of them takes these options.
    """
    stores = [found for place in places if (found := _store_of(place))]
    for kind, bucket in stores:
        kind.of(bucket, options)
    if stores:
        return
    failures = []
    for kind in _KINDS:
        try:
            kind.of("", options)
        except SettingsError as failure:
            failures.append(failure)
    if len(failures) == len(_KINDS):
        raise failures[0]


def place_of(text: str | Path, options: Mapping[str, str]) -> AnyPath:
    """The place that a checked path or URL names. options: the setting `storage_options`.

    Raises:
        SettingsError: the options are not for this kind of store.
    """
    found = _store_of(str(text))
    if found is None:
        return Path(text)
    kind, bucket = found
    return ObjectPath(kind.of(bucket, options), str(text).partition("://")[2].partition("/")[2])


def _store_of(place: str) -> tuple[type[Access], str] | None:
    """The kind of store and the bucket of a checked URL; None for a path."""
    scheme, separator, rest = place.partition("://")
    return (_STORES[scheme], rest.partition("/")[0]) if separator and scheme in _STORES else None


def options_of(place: AnyPath) -> dict[str, str] | None:
    """What delta-rs and Polars need to open the place. Has secrets."""
    return place.access.client_options() if isinstance(place, ObjectPath) else None


def access_of(place: AnyPath) -> Access | None:
    """How its store is reached; None for a path."""
    return place.access if isinstance(place, ObjectPath) else None


def spark_name(place: AnyPath) -> str:
    """The place in Hadoop's terms."""
    return f"{place.access.hadoop_root}/{place.key}" if isinstance(place, ObjectPath) else str(place)


def remove_tree(folder: AnyPath) -> None:
    """Remove a folder with everything in it; it may be missing."""
    if isinstance(folder, ObjectPath):
        folder.remove_tree()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def matching(folder: AnyPath, pattern: str) -> list[AnyPath]:
    """What is directly in a folder and has a name like this, in the order of the names."""
    return sorted(folder.glob(pattern), key=str)


def names_in(folder: AnyPath) -> list[str]:
    """The names in a folder; none where it is missing."""
    if isinstance(folder, ObjectPath):
        return [each.name for each in folder.iterdir()]
    try:
        return os.listdir(folder)  # noqa: PTH208  half the time of iterdir, in every batch of every bucket
    except FileNotFoundError:
        return []


def write_whole(file: AnyPath, content: bytes) -> None:
    """Write a file atomically: others see all of it or none. The folder is created if it is missing."""
    if isinstance(file, ObjectPath):
        file.write_bytes(content)
        return
    partial = _partial_of(file)
    try:
        partial.write_bytes(content)
    except FileNotFoundError:
        file.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content)
    partial.replace(file)


def create_whole(file: AnyPath, content: bytes) -> bool:
    """Write a file atomically unless there is one; returns whether this process has, of all that try."""
    if isinstance(file, ObjectPath):
        return file.create(content)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = _partial_of(file)
    with partial.open("wb") as written:
        written.write(content)
        written.flush()
        os.fsync(written.fileno())  # a file that others go by is whole after a power cut too
    try:
        file.hardlink_to(partial)
    except FileExistsError:
        return False
    finally:
        partial.unlink()
    return True


@contextmanager
def whole(file: AnyPath) -> Iterator[Path]:
    """Yield a temporary path to write to, whose content becomes the file at the end: it is complete or absent."""
    if isinstance(file, ObjectPath):
        with tempfile.TemporaryDirectory(prefix="nightjar-upload-") as folder:
            partial = Path(folder) / "content"
            yield partial
            file.write_bytes(partial.read_bytes())
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = _partial_of(file)
    yield partial
    partial.replace(file)


@contextmanager
def mirrored(folder: AnyPath) -> Iterator[Path]:
    """A path where the folder's files are, for libraries that know no others; what they change there is brought back.

    Nobody else may write to the folder meanwhile.
    """
    if not isinstance(folder, ObjectPath):
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="nightjar-mirror-") as temporary:
        local, before = Path(temporary), {}
        for each in folder.rglob("*"):
            name, content = each.relative_to(folder), each.read_bytes()
            write_whole(local / name, content)
            before[name] = content
        yield local
        after = {str(file.relative_to(local)): file.read_bytes() for file in local.rglob("*") if file.is_file()}
        for name, content in after.items():
            if before.get(name) != content:
                (folder / name).write_bytes(content)
        for name in before.keys() - after.keys():
            (folder / name).unlink()


@contextmanager
def local_copy(file: AnyPath) -> Iterator[Path]:
    """A path from which the file can be read, for libraries that read no others."""
    if not isinstance(file, ObjectPath):
        yield file
        return
    with tempfile.TemporaryDirectory(prefix="nightjar-download-") as folder:
        copy = Path(folder) / file.name
        copy.write_bytes(file.read_bytes())
        yield copy


def _partial_of(file: Path) -> Path:
    return file.with_name(f".partial-{uuid.uuid4().hex}")  # process ids repeat on other machines
