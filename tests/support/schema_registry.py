"""A real schema registry with Confluent's interface, on a free port, that may ask for a login."""

import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from nightjar.jvm.jars import PROJECT, jars, java
from nightjar.processes.process import HOST, ManagedProcess, free_port
from nightjar.rules.errors import NightjarError

_START_SECONDS = 60.0
_STOP_SECONDS = 20.0
_USER = "tests"


@dataclass(frozen=True)
class Reference:
    """Another schema that a schema uses. name: of the Avro type, or the path that the Protobuf file imports."""

    name: str
    subject: str
    version: int = 1


@dataclass(frozen=True)
class SchemaRegistry:
    """A running registry. url: of Confluent's interface; login: user and password, None if it asks for none."""

    url: str
    login: tuple[str, str] | None

    def get(self, path: str) -> httpx.Response:
        """Its answer, whatever the status."""
        return httpx.get(f"{self.url}{path}", auth=self.login, trust_env=False, timeout=30)

    def register(
        self, subject: str, schema: str, schema_type: str = "AVRO", references: Sequence[Reference] = ()
    ) -> int:
        """Add a version to a subject; returns the schema's id. A schema that it refuses fails the test."""
        answer = httpx.post(
            f"{self.url}/subjects/{subject}/versions",
            json={"schema": schema, "schemaType": schema_type, "references": [vars(each) for each in references]},
            auth=self.login,
            trust_env=False,
            timeout=30,
        )
        assert answer.status_code == httpx.codes.OK, f"{subject}: {answer.status_code} {answer.text}"
        return int(answer.json()["id"])


@contextmanager
def schema_registry(*, asks_for_login: bool = True) -> Iterator[SchemaRegistry]:
    """An empty registry, which keeps its schemas in memory; it takes about four seconds to start."""
    with tempfile.TemporaryDirectory(prefix="nightjar-schema-registry-") as made:
        folder, port = Path(made), free_port()
        login = (_USER, secrets.token_hex(16)) if asks_for_login else None
        properties = {"quarkus.http.host": HOST, "quarkus.http.port": port}
        if login is not None:
            user, password = login
            properties |= {
                "quarkus.http.auth.basic": "true",
                "quarkus.http.auth.permission.all.paths": "/*",
                "quarkus.http.auth.permission.all.policy": "authenticated",
                "quarkus.security.users.embedded.plain-text": "true",
                f"quarkus.security.users.embedded.users.{user}": password,
                f"quarkus.security.users.embedded.roles.{user}": "user",
            }
        file = folder / "registry.properties"
        file.touch(mode=0o600)
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        registry = SchemaRegistry(f"http://{HOST}:{port}/apis/ccompat/v7", login)
        with running(folder, [file], lambda: _answers(registry)):
            yield registry


@contextmanager
def running(folder: Path, configuration: Sequence[Path], is_ready: Callable[[], bool]) -> Iterator[None]:
    """The server, with these files of properties, until the block ends. folder: takes its log."""
    (jar,) = jars("registry", PROJECT / "deploy" / "compose" / "schema-registry" / "ivy.xml")
    options = [
        "-XX:TieredStopAtLevel=1",
        "-Xmx192m",
        f"-Djava.io.tmpdir={folder}",
        f"-Dquarkus.config.locations={','.join(map(str, configuration))}",
    ]
    command = [java(), *options, "-cp", str(jar), "io.quarkus.runner.GeneratedMain"]
    server = ManagedProcess("the schema registry", command, folder / "registry.log", NightjarError)
    server.start()
    try:
        server.await_ready(is_ready, _START_SECONDS)
        yield
    finally:
        server.stop(_STOP_SECONDS)


def _answers(registry: SchemaRegistry) -> bool:
    try:
        return registry.get("/subjects").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False
