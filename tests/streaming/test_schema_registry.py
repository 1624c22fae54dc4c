"""Events in Avro whose schemas a real registry has, from a real job to the lake."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import polars as pl
import pytest

from nightjar.cases import Message, Step
from nightjar.configuration.lake import lake_config
from nightjar.formats.registry import Registry
from nightjar.kafka import topics
from nightjar.lake.archive import archive
from nightjar.lake.scanning import scan
from nightjar.lake.tables import QUARANTINE, events_table
from nightjar.rules.errors import NightjarError
from nightjar.rules.streams import streams_from_mapping
from tests.support.job_host import CaseRun
from tests.support.schema_registry import schema_registry
from tests.support.topics import TestTopics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(300)]

MINUTE = 60_000_000
NOON = 1_767_614_400_000_000
RULE = {
    "id": "busy",
    "stream": "payments",
    "group_by": ["card"],
    "measures": {"spent": {"sum": "amount", "over": "1h"}},
    "when": "spent > 20",
}
DECLARED = {
    "event_id": "id",
    "event_time": "at",
    "entities": ["card"],
    "format": "avro",
    "fields": {
        "id": "string",
        "at": "timestamp",
        "card": {"type": "string", "from": "$key"},
        "amount": "decimal(12,2)",
        "tenant": {"type": "string", "from": "$headers.tenant", "optional": True},
        "shop": {"type": "string", "optional": True},
    },
}
AT = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}}
AMOUNT = {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}}
SHOP = {"name": "shop", "type": ["null", "string"], "default": None}


def schema(*fields: object) -> str:
    return json.dumps({"type": "record", "name": "Payment", "fields": [{"name": "id", "type": "string"}, *fields]})


def step(minute: int, *events: Any, rules: tuple[bytes, ...] = (), crash: bool = False) -> Step:
    """Events as JSON, or bytes."""
    made = tuple(Message("payments", of if isinstance(of, bytes) else json.dumps(of).encode()) for of in events)
    return Step(NOON + minute * MINUTE, crash=crash, rules=rules, events=made)


def payment(number: int, minute: int, **more: Any) -> dict[str, Any]:
    at = f"2026-01-05T12:{minute:02}:00Z"
    return {"id": f"p{number}", "at": at, "amount": 10.01, "$key": "c1", "$headers": {"tenant": "north"}, **more}


@pytest.mark.parametrize("latency", ["micro-batch", "real-time"])
def test_the_job_and_the_lake_read_records_by_their_schemas(
    spark: "SparkSession", kafka_topics: TestTopics, tmp_path: Path, latency: str
) -> None:
    """Two versions of a schema, a crash between them, a schema that nobody knows, and a record of no schema."""
    declared = {**DECLARED, "topic": f"payments-{tmp_path.name}"}
    stream = streams_from_mapping({"payments": declared}, "tests")["payments"]
    login = tmp_path / "login"
    own = {"arrival": "producer", "partitions": 1, "buckets": 2, "warm_up_batches": 0, "latency": latency}
    with schema_registry() as registry:
        assert registry.login is not None
        login.write_text(":".join(registry.login))
        reached = {"schema_registry": registry.url, "schema_registry_login_file": login}
        settings = kafka_topics.settings.model_copy(update={**own, **reached, "data_dir": tmp_path})
        topics.ensure(settings, [stream])
        changes = {"real_time_batch": 1_000_000, "gather": 200_000} if latency == "real-time" else {}
        with CaseRun(spark, settings, {"payments": stream}, **changes) as job:
            job.take(step(0, rules=(json.dumps(RULE).encode(),)))
            registry.register(f"{stream.topic}-value", schema(AT, AMOUNT))
            job.take(step(10, payment(1, 8), payment(2, 9), b"\0\0\0\xff\xffx", b"no Avro"))
            registry.register(f"{stream.topic}-value", schema(SHOP, AMOUNT, AT))
            job.take(step(11, payment(3, 10, shop="s1"), crash=True))
            outcome = job.outcome()
    assert [(alert["event_id"], alert["measures"]["spent"]) for alert in outcome.alerts] == [
        ("p2", "20.02"),
        ("p3", "30.03"),
    ]
    refused = [("unknown_schema", "the registry has no schema 65535"), ("not_avro", "it does not begin with")]
    for record, (reason, detail) in zip(outcome.quarantine, refused, strict=True):
        assert record["reason"] == reason
        assert record["detail"].startswith(detail)

    # the registry is gone, and the lake reads the same by what was kept
    config = lake_config(settings, {"payments": stream})
    archive(spark, config)
    found = scan(config.root, events_table(stream)).collect().sort("offset")
    columns = ("id", "card", "amount", "tenant", "shop", "rejected")
    assert found.select(pl.col(columns).cast(pl.String)).rows() == [
        ("p1", "c1", "10.01", "north", None, None),
        ("p2", "c1", "10.01", "north", None, None),
        (None, None, None, None, None, "unknown_schema"),
        (None, None, None, None, None, "not_avro"),
        ("p3", "c1", "10.01", "north", "s1", None),
    ]
    assert found["original"].to_list() == [None, None, b"\0\0\0\xff\xffx", b"no Avro", None]
    assert scan(config.root, QUARANTINE).collect().height == 2


def test_without_a_registry_the_job_says_what_to_set(kafka_topics: TestTopics) -> None:
    with pytest.raises(NightjarError, match=r"schema_registry: is empty.*stream payments.*Give the registry's URL"):
        lake_config(kafka_topics.settings, streams_from_mapping({"payments": DECLARED}, "tests"))


def test_a_registry_answers_for_subjects(tmp_path: Path) -> None:
    """The newest version, also of a subject with a slash in its name; none of an unknown one."""
    with schema_registry(asks_for_login=False) as server:
        registry = Registry(server.url)
        server.register("a%2Fb-value", schema(AT))
        number = server.register("a%2Fb-value", schema(AT, SHOP))
        found = registry.latest("a/b-value")
        assert found is not None
        assert (found[0], json.loads(found[1].text)) == (number, json.loads(schema(AT, SHOP)))
        assert registry.latest("nobody-value") is None
        assert httpx.get(f"{server.url}/subjects", trust_env=False).json() == ["a/b-value"]
