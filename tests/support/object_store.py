"""Real servers of object stores on free ports, that ask for credentials: one class for each kind of store."""

from __future__ import annotations

import json
import os
import secrets
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self

from nightjar.jvm.jars import PROJECT, jars, java
from nightjar.processes.process import ManagedProcess, free_port
from nightjar.rules.errors import NightjarError
from nightjar.storage.objects import ObjectPath, StorageError
from nightjar.storage.paths import checked, place_of

START_SECONDS = 60.0
BUCKET = "nightjar"


class ObjectStore(ABC):
    """The server, running inside a `with` block. folder: takes its data, its log, and the credentials."""

    name: ClassVar[str]
    """Of the kind of store, in tests' ids."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.secret = self.new_secret()
        self.credentials = folder / "credentials"
        self.port = free_port()

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.write_credentials(self.credentials, self.secret)
        self._server = self._made()
        self._server.start()
        self._server.await_ready(self._answers, START_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(0)

    @abstractmethod
    def _made(self) -> ManagedProcess:
        """The server's process, not started."""

    @abstractmethod
    def new_secret(self) -> str:
        """A secret in the form of this kind of store."""

    @abstractmethod
    def _credentials_of(self, secret: str) -> str:
        """The content of a file of credentials."""

    @abstractmethod
    def url(self, bucket: str) -> str:
        """The URL of a bucket."""

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, str]:
        """The setting `storage_options`."""
        return {"endpoint": self.endpoint, "credentials_file": str(self.credentials)}

    def place(self, name: str, *, bucket: str = BUCKET, **options: str) -> ObjectPath:
        """A folder of a test's own, with some of the options changed."""
        found = place_of(checked(f"{self.url(bucket)}/{name}"), self.options | options)
        assert isinstance(found, ObjectPath)
        return found

    def settings(self, name: str) -> dict[str, Any]:
        """What brings the lake and the checkpoint into a folder of the store."""
        place = self.place(name)
        return {"lake_dir": f"{place}/lake", "checkpoint_dir": f"{place}/checkpoint", "storage_options": self.options}

    def environment(self, name: str) -> dict[str, str]:
        """The same, as a process gets it."""
        given = self.settings(name)
        return {name: of if isinstance(of, str) else json.dumps(of) for name, of in given.items()}

    def write_credentials(self, file: Path, secret: str) -> None:
        """Write a file of credentials with this secret."""
        file.touch(mode=0o600)
        file.write_text(self._credentials_of(secret))

    def _answers(self) -> bool:
        try:
            return not self.place("ready").is_file()
        except (StorageError, OSError):
            return False


class S3Server(ObjectStore):
    """S3Proxy, over a folder."""

    name = "s3"
    user = "tests"

    def _made(self) -> ManagedProcess:
        (self.folder / "data" / BUCKET).mkdir(parents=True)
        properties = {
            "s3proxy.endpoint": self.endpoint,
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": self.user,
            "s3proxy.credential": self.secret,
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": str(self.folder / "data"),
        }
        file = self.folder / "s3proxy.conf"
        file.touch(mode=0o600)
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        server = PROJECT / "deploy" / "compose" / "object-store"
        class_path = os.pathsep.join(map(str, [server, *jars("server", server / "ivy.xml")]))
        options = ["-XX:TieredStopAtLevel=1", "-Xmx192m", "-DLOG_LEVEL=WARN", "-cp", class_path]
        command = [java(), *options, "org.gaul.s3proxy.Main", "--properties", str(file)]
        return ManagedProcess("the S3 server", command, self.folder / "s3proxy.log", NightjarError)

    def new_secret(self) -> str:
        return secrets.token_hex(16)

    def _credentials_of(self, secret: str) -> str:
        return f"[default]\naws_access_key_id = {self.user}\naws_secret_access_key = {secret}\n"

    def url(self, bucket: str) -> str:
        return f"s3://{bucket}"
