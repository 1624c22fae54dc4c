"""The protocol between the stage server and its clients: the socket's path, the server's key, and the messages.

A server has one Spark session, so its socket is named after everything that the session and the stages depend on:
settings, streams, jars, environment and code. A client with other settings finds no server and starts another.

Messages are JSON objects, one per line, over a socket in a folder that only this user can access; both sides check the
other's user with the operating system.
"""

import hashlib
import json
import os
import socket
import stat
import struct
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from nightjar.configuration.settings import FILE_VARIABLE, Settings, load_settings
from nightjar.installation import package_files
from nightjar.jvm.jars import jars
from nightjar.rules.errors import NightjarError

# Largest message in bytes: the values of a form, or a line of a log.
LONGEST_MESSAGE = 1 << 20

# What a session depends on: values by kind (such as `setting`) and name.
Parts = Mapping[str, Mapping[str, Any]]

# Environment variables that Spark, Java, Python and nightjar read.
_VARIABLES = ("NIGHTJAR_", "SPARK_", "PYSPARK_", "HADOOP_", "JAVA_", "JDK_", "_JAVA_")
_NAMES = frozenset({"PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "TMPDIR", "TZ", "HOME"})
_OTHERS = 0o077
_NAMED = 3


class StageServerError(NightjarError):
    """A stage could not be run because its server is missing or was lost."""


def server_folder(owner: str) -> Path:
    """The folder of an owner's sockets, created if missing. owner: any text, such as an Airflow's home folder.

    Raises:
        StageServerError: another user owns it or can access it.
    """
    # Not below the owner's own folder: the path of a socket is limited to 107 bytes.
    name = hashlib.sha256(owner.encode()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"nightjar-{os.getuid()}-{name}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & _OTHERS:
        raise StageServerError(
            "is not a private folder of this user", where=str(folder), remedy="Remove it, or set TMPDIR to another"
        )
    return folder


def session_parts(environment: Mapping[str, str]) -> Parts:
    """What a session started now with this environment would depend on, by kind and name.

    environment: as it was when the program started, because PySpark changes it later. The result contains secrets, so
    only hashes of it may leave the process.

    Raises:
        NightjarError: the settings cannot be read, or the jars are missing.
    """
    settings = load_settings()
    return {
        "setting": _plain(settings),
        "file": {
            str(file): _content(file)
            for file in (
                settings.streams,
                settings.kafka_password_file,
                settings.schema_registry_login_file,
                settings.schema_registry_ca_file,
                Path(environment.get(FILE_VARIABLE) or "nightjar.toml"),
            )
        },
        "jar": _stamps(jars("spark")),
        "variable": {n: v for n, v in sorted(environment.items()) if n in _NAMES or n.startswith(_VARIABLES)},
        "folder": {"working": str(Path.cwd())},
        "Python": {"program": sys.executable, "version": sys.version, **_stamps(_site_packages())},
        "code": _stamps(file for file in package_files() if file.suffix in {".py", ".toml"}),
    }


def server_key(parts: Parts) -> str:
    """The name of the server whose session depends on these parts."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]


def changed_parts(before: Parts, now: Parts) -> str:
    """Names of what differs, such as `setting driver_memory`, without values, which may be secret; may be empty."""
    found = [
        f"{kind} {name}"
        for kind, old in before.items()
        for name in sorted({*old, *now[kind]})
        if old.get(name) != now[kind].get(name)
    ]
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more


def _plain(settings: Settings) -> dict[str, Any]:
    """The settings' values including secrets; only a hash of all of them leaves this module."""

    def revealed(value: Any) -> Any:
        return value.get_secret_value() if isinstance(value, SecretStr) else str(value)

    values = settings.model_dump()
    return {n: {k: revealed(v) for k, v in x.items()} if isinstance(x, dict) else str(x) for n, x in values.items()}


def _content(file: Path | None) -> str:
    return file.read_bytes().hex() if file is not None and file.is_file() else ""


def _stamps(files: Iterable[Path]) -> dict[str, list[int]]:
    """Size in bytes and modification time in nanoseconds, by path."""
    return {str(file): [(found := file.stat()).st_size, found.st_mtime_ns] for file in files}


def _site_packages() -> Iterator[Path]:
    """The folders of installed packages, whose modification time changes when one is installed or removed."""
    yield from (Path(place) for place in sys.path if place.endswith("site-packages") and Path(place).is_dir())


def send(connection: socket.socket, message: Mapping[str, Any]) -> None:
    """Send a message.

    Raises:
        OSError: the other side has disconnected.
    """
    connection.sendall(json.dumps(message).encode() + b"\n")


def messages(connection: socket.socket) -> Iterator[dict[str, Any]]:
    """The received messages, until the other side closes or loses the connection.

    Raises:
        StageServerError: invalid data was received.
    """
    held = b""
    while True:
        try:
            received = connection.recv(65536)
        except ConnectionResetError:
            return
        if not received:
            return
        *whole, held = (held + received).split(b"\n")
        if len(held) > LONGEST_MESSAGE:
            raise StageServerError("a message is too long", where="stage server", remedy="Restart it")
        for line in whole:
            yield _message(line)


def _message(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise StageServerError("a message is not a JSON object", where="stage server", remedy="Restart it")
    return found


def is_own(connection: socket.socket) -> bool:
    """Whether the process at the other end belongs to this user, according to the operating system."""
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return bool(uid == os.getuid())
