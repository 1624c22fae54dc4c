"""A real S3 server on a free port, over a folder, that asks for credentials."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any, Self

from nightjar.jvm.jars import PROJECT, jars, java
from nightjar.processes.process import ManagedProcess, free_port
from nightjar.rules.errors import NightjarError
from nightjar.storage.access import Access
from nightjar.storage.objects import ObjectPath, StorageError

_START_SECONDS = 60.0
_BUCKET = "nightjar"


class ObjectStore:
    """The server, running inside a `with` block. folder: takes its data, its log, and the credentials."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.user, self.secret = "tests", secrets.token_hex(16)
        self.credentials = folder / "credentials"
        self._port = free_port()

    def __enter__(self) -> Self:
        (self._folder / "data" / _BUCKET).mkdir(parents=True)
        self.write_credentials(self.credentials, self.secret)
        properties = {
            "s3proxy.endpoint": self.endpoint,
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": self.user,
            "s3proxy.credential": self.secret,
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": str(self._folder / "data"),
        }
        file = self._folder / "s3proxy.conf"
        file.touch(mode=0o600)
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        server = PROJECT / "deploy" / "compose" / "object-store"
        class_path = os.pathsep.join(map(str, [server, *jars("server", server / "ivy.xml")]))
        options = ["-XX:TieredStopAtLevel=1", "-Xmx192m", "-DLOG_LEVEL=WARN", "-cp", class_path]
        command = [java(), *options, "org.gaul.s3proxy.Main", "--properties", str(file)]
        self._server = ManagedProcess("the S3 server", command, self._folder / "s3proxy.log", NightjarError)
        self._server.start()
        self._server.await_ready(self._answers, _START_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(0)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def options(self) -> dict[str, str]:
        """The setting `storage_options`."""
        return {"endpoint": self.endpoint, "credentials_file": str(self.credentials)}

    @property
    def access(self) -> Access:
        return Access.of(self.options)

    def place(self, name: str) -> ObjectPath:
        """A folder of a test's own."""
        return ObjectPath(_BUCKET, name, self.access)

    def settings(self, name: str) -> dict[str, Any]:
        """What brings the lake and the checkpoint into a folder of the store."""
        place = self.place(name)
        return {"lake_dir": f"{place}/lake", "checkpoint_dir": f"{place}/checkpoint", "storage_options": self.options}

    def environment(self, name: str) -> dict[str, str]:
        """The same, as a process gets it."""
        given = self.settings(name)
        return {name: of if isinstance(of, str) else json.dumps(of) for name, of in given.items()}

    def write_credentials(self, file: Path, secret: str) -> None:
        """Write them in AWS's form."""
        file.touch(mode=0o600)
        file.write_text(f"[default]\naws_access_key_id = {self.user}\naws_secret_access_key = {secret}\n")

    def _answers(self) -> bool:
        try:
            return not self.place("ready").is_file()
        except (StorageError, OSError):
            return False
