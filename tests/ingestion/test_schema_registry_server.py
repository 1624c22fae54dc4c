"""The schema registry that tests start: what it returns of the schemas that were registered."""

import json
from collections.abc import Iterator

import httpx
import pytest

from tests.support.schema_registry import Reference, SchemaRegistry, schema_registry

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
