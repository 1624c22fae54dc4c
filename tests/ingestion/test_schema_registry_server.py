"""The schema registry of tests and of docker-compose.yaml: what it returns, and to whom."""

import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from nightjar.deployment.secrets import make
from nightjar.jvm.jars import PROJECT
from nightjar.processes.process import HOST, free_port
from tests.support.schema_registry import Reference, SchemaRegistry, running, schema_registry

pytestmark = pytest.mark.slow

MONEY = {"type": "record", "name": "Money", "namespace": "shop", "fields": [{"name": "cents", "type": "long"}]}
PAYMENT = {
    "type": "record",
    "name": "Payment",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "string"}, {"name": "amount", "type": "shop.Money"}],
}
MONEY_PROTO = """
syntax = "proto3";
package shop;
message Money { int64 cents = 1; }
"""
PAYMENT_PROTO = """
syntax = "proto3";
package shop;
import "shop/money.proto";
import "google/protobuf/timestamp.proto";
message Payment {
  string id = 1;
  Money amount = 2;
  google.protobuf.Timestamp at = 3;
}
"""


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as running:
        yield running


def test_an_avro_schema_is_returned_with_its_references(registry: SchemaRegistry) -> None:
    plain = registry.register("money-value", json.dumps(MONEY))
    uses = registry.register("payments-value", json.dumps(PAYMENT), references=[Reference("shop.Money", "money-value")])
    found = registry.get(f"/schemas/ids/{plain}").json()
    assert (found["schemaType"], json.loads(found["schema"]), found["references"]) == ("AVRO", MONEY, [])
    found = registry.get(f"/schemas/ids/{uses}").json()
    assert (found["schemaType"], json.loads(found["schema"])) == ("AVRO", PAYMENT)
    (reference,) = found["references"]
    assert reference == {"name": "shop.Money", "subject": "money-value", "version": 1}
    referred = registry.get(f"/subjects/{reference['subject']}/versions/{reference['version']}").json()
    assert (referred["id"], json.loads(referred["schema"])) == (plain, MONEY)


def test_a_protobuf_schema_is_returned_with_its_imports(registry: SchemaRegistry) -> None:
    """Those that Protobuf itself defines are not registered."""
    money = registry.register("money-proto", MONEY_PROTO, "PROTOBUF")
    payment = registry.register(
        "payments-proto", PAYMENT_PROTO, "PROTOBUF", [Reference("shop/money.proto", "money-proto")]
    )
    found = registry.get(f"/schemas/ids/{payment}").json()
    assert found == {
        "schemaType": "PROTOBUF",
        "schema": PAYMENT_PROTO,
        "references": [{"name": "shop/money.proto", "subject": "money-proto", "version": 1}],
    }
    referred = registry.get("/subjects/money-proto/versions/1").json()
    assert (referred["id"], referred["schema"], referred["schemaType"]) == (money, MONEY_PROTO, "PROTOBUF")


def test_an_unknown_id_is_not_found(registry: SchemaRegistry) -> None:
    answer = registry.get("/schemas/ids/4711")
    assert (answer.status_code, answer.json()["error_code"]) == (404, 40403)


@pytest.mark.parametrize("login", [None, ("tests", "wrong")], ids=["none", "wrong"])
def test_it_refuses_who_does_not_log_in(registry: SchemaRegistry, login: tuple[str, str] | None) -> None:
    answer = httpx.get(f"{registry.url}/subjects", auth=login, trust_env=False)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "basic")


def test_it_can_be_open_to_all() -> None:
    with schema_registry(asks_for_login=False) as registry:
        assert httpx.get(f"{registry.url}/subjects", trust_env=False).json() == []


def test_in_docker_compose_writers_register_schemas_and_readers_read_them(tmp_path: Path) -> None:
    """Over TLS; the schemas are still there after a restart."""
    made = tmp_path / "secrets"
    made.mkdir()
    make(made)
    folder, port = made / "schema-registry", free_port()
    text = (PROJECT / "deploy" / "compose" / "schema-registry" / "registry.properties").read_text()
    for written, own in {
        "/run/secrets/registry": folder,
        "/var/lib/registry": tmp_path,
        "port=8081": f"port={port}",
    }.items():
        assert written in text
        text = text.replace(written, str(own))
    file = tmp_path / "registry.properties"
    file.write_text(f"{text}quarkus.http.host={HOST}\n")
    configuration = [file, folder / "logins.properties"]
    trust = ssl.create_default_context(cafile=folder / "ca.pem")
    writer, reader = (
        httpx.Client(
            base_url=f"https://localhost:{port}/apis/ccompat/v7",
            auth=(login, (folder / f"{login}-password").read_text().strip()),
            verify=trust,
            trust_env=False,
        )
        for login in ("writer", "reader")
    )

    def answers() -> bool:
        try:
            return reader.get("/subjects").is_success
        except httpx.TransportError:
            return False

    given = {"schema": json.dumps(MONEY)}
    with writer, reader:
        with running(tmp_path, configuration, answers):
            assert httpx.get(reader.base_url.join("subjects"), verify=trust, trust_env=False).status_code == 401
            assert reader.post("/subjects/money-value/versions", json=given).status_code == 403
            (identity,) = writer.post("/subjects/money-value/versions", json=given).json().values()
        with running(tmp_path, configuration, answers):
            assert json.loads(reader.get(f"/schemas/ids/{identity}").json()["schema"]) == MONEY
