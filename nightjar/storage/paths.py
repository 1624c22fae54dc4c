"""Places of files: a path, which is used as it is, or the URL of an object store."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from nightjar.storage.access import Access
from nightjar.storage.objects import ObjectPath

AnyPath: TypeAlias = Path | ObjectPath

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/")  # one slash: a Path merges two
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_SUPPORTED = (
    "Give s3://bucket/folder (s3a:// is the same) of a store with conditional writes, such as AWS, MinIO or Ceph; or a "
    "path (file:///folder is the same), on a cluster one that every machine mounts"
)


def checked(text: str) -> str:
    """A setting's path or URL as it is used: paths as they are, a file URL as its path, others as s3://bucket/folder.

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
    if scheme not in ("s3", "s3a"):
        raise ValueError(f"{scheme}: is not supported. {_SUPPORTED}")
    folder = parts.path.strip("/")
    if not _BUCKET.fullmatch(parts.netloc) or not folder or parts.query or parts.fragment or "//" in folder:
        raise ValueError(f"{scheme}: URLs have the form {scheme}://bucket/folder")
    return f"s3://{parts.netloc}/{folder}"


def place_of(text: str | Path, access: Access) -> AnyPath:
    """The place that a checked path or URL names."""
    if isinstance(text, str) and text.startswith("s3://"):
        bucket, _, key = text.removeprefix("s3://").partition("/")
        return ObjectPath(bucket, key, access)
    return Path(text)


def options_of(place: AnyPath) -> dict[str, str] | None:
    """What delta-rs and Polars need to open the place. Has secrets."""
    return place.access.client_options() if isinstance(place, ObjectPath) else None


def access_of(place: AnyPath) -> Access | None:
    """How its store is reached; None for a path."""
    return place.access if isinstance(place, ObjectPath) else None


def spark_name(place: AnyPath) -> str:
    """The place in Hadoop's terms."""
    return f"s3a://{place.bucket}/{place.key}" if isinstance(place, ObjectPath) else str(place)


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
    partial.write_bytes(content)
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
