"""Azurite, Azure's own storage emulator. It has Azure's interface of blobs, and none of a hierarchical namespace."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from typing import Self
from urllib.parse import urlencode

import httpx

from nightjar.processes.process import ManagedProcess
from nightjar.rules.errors import NightjarError
from tests.support.object_store import BUCKET, ObjectStore
from tools.test_servers import azurite, node

_ACCOUNT = "nightjartests"
_VERSION = "2021-08-06"


class AzureServer(ObjectStore):
    """Azurite, with its data in memory."""

    name = "azure"

    def __enter__(self) -> Self:
        super().__enter__()
        self._make_container(BUCKET)
        return self

    def _made(self) -> ManagedProcess:
        options = ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
        where = ["--blobHost", "127.0.0.1", "--blobPort", str(self.port)]
        return ManagedProcess(
            "Azurite",
            [*node(), str(azurite()), *where, *options],
            self.folder / "azurite.log",
            NightjarError,
            environment=os.environ | {"AZURITE_ACCOUNTS": f"{_ACCOUNT}:{self.secret}"},
            folder=self.folder,
        )

    def new_secret(self) -> str:
        return base64.b64encode(secrets.token_bytes(32)).decode()

    def _credentials_of(self, secret: str) -> str:
        return f"[default]\naccount_key = {secret}\n"

    def url(self, bucket: str) -> str:
        return f"abfss://{bucket}@{_ACCOUNT}.dfs.core.windows.net"

    def _answers(self) -> bool:
        try:
            return httpx.get(self.endpoint).status_code > 0
        except httpx.TransportError:
            return False

    def signature(self, permissions: str) -> str:
        """A shared access signature of the account, for blobs and for an hour."""
        until = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        given = {"sp": permissions, "ss": "b", "srt": "sco", "st": "", "se": until, "sip": "", "spr": "https,http"}
        text = "\n".join([_ACCOUNT, *given.values(), _VERSION, "", ""])
        return urlencode({name: of for name, of in given.items() if of} | {"sv": _VERSION, "sig": self._signed(text)})

    def _signed(self, text: str) -> str:
        digest = hmac.digest(base64.b64decode(self.secret), text.encode(), hashlib.sha256)
        return base64.b64encode(digest).decode()

    def _make_container(self, name: str) -> None:
        """By a request signed as Azure describes for its shared keys, because obstore makes none."""
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _VERSION}
        named = "\n".join(f"{name}:{value}" for name, value in headers.items())
        text = "\n".join(["PUT", *[""] * 11, named, f"/{_ACCOUNT}/{_ACCOUNT}/{name}", "restype:container"])
        headers["Authorization"] = f"SharedKey {_ACCOUNT}:{self._signed(text)}"
        url = f"{self.endpoint}/{_ACCOUNT}/{name}?restype=container"
        httpx.put(url, headers=headers).raise_for_status()
