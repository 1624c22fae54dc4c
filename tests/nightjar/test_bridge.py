"""The operator of real-time queries: compiled from its source without a JDK, and run by Spark with a small engine."""

import socket
import threading
import zipfile
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from nightjar.jvm import bridge
from nightjar.jvm.bridge import SOURCE, bridge_jar, bytecode
from nightjar.jvm.jars import JarsError
from nightjar.streaming.buckets.output_records import RECORDS
from nightjar.streaming.driver.query import bridged
from nightjar.streaming.real_time.frames import STORED, TaskConnection, encoded, replies

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
INPUT = "topic string, partition int, offset bigint, timestamp timestamp, value binary, sent_at bigint"
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


class Echo(threading.Thread):
    """An engine that sends each value back as a record, keyed by its offset; NULL becomes a record without a value."""

    def __init__(self, path: Path, *, die: bool = False) -> None:
        super().__init__(daemon=True)
        self._die = die
        self.hellos: list[tuple[int, int, int]] = []
        self.received = 0
        self.beside: dict[str, list[Any]] = {}
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()

    def run(self) -> None:
        while True:
            threading.Thread(target=self._serve, args=[self._listener.accept()[0]], daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(EOFError):  # closed after any error: Spark would wait
            self._answer(TaskConnection(connection), connection)

    def _answer(self, task: TaskConnection, connection: socket.socket) -> None:
        room = bytearray(1 << 16)
        while not task.has_ended:
            records = task.receive(room)
            if records is None:
                continue
            if self._die:
                connection.close()
                return
            self.received += len(records.offsets)
            for name, column in records.beside.items():
                self.beside.setdefault(name, []).extend(column.to_pylist())
            _, values, sent_at = (column.to_pylist() for column in records.columns)
            rows = zip(records.offsets.tolist(), values, sent_at, strict=True)
            echoed = [
                {
                    "topic": "out",
                    "key": str(offset),
                    "value": None if value is None else value.decode(),
                    "headers": None if sent is None else [{"key": "sent_at", "value": b"%d" % sent}],
                }
                for offset, value, sent in rows
            ]
            connection.sendall(encoded(replies([pa.Table.from_pylist(echoed, RECORDS)])))
        if task.hello is not None:
            self.hellos.append((task.hello.batch, task.hello.tasks, task.hello.attempt))
        connection.sendall(STORED)


def through(spark: "SparkSession", records: DataFrame, path: Path) -> list[tuple[Any, ...]]:
    """What the operator makes of records in batch 7."""
    spark.sparkContext.setLocalProperty("streaming.sql.batchId", "7")
    try:
        return [
            (row.topic, row.key, row.value, [(h.key, bytes(h.value)) for h in row.headers] if row.headers else None)
            for row in bridged(records, str(path)).collect()
        ]
    finally:
        spark.sparkContext.setLocalProperty("streaming.sql.batchId", None)


def records(spark: "SparkSession", rows: list[tuple[Any, ...]]) -> DataFrame:
    """Records (partition, offset, value, sent_at) in two tasks."""
    return spark.createDataFrame([("events", p, o, NOON, v, s) for p, o, v, s in rows], INPUT).repartition(
        2, "partition"
    )


def test_records_pass_both_ways_as_they_are(spark: "SparkSession", tmp_path: Path) -> None:
    """Text beyond ASCII, NULL, nothing, and megabytes."""
    engine = Echo(tmp_path / "s")
    engine.start()
    values = [b"plain", "Zürich 🦉".encode(), None, b"", b"x" * 3_000_000]
    rows = [(0, n, value, 99 if n else None) for n, value in enumerate(values)]
    found = sorted(through(spark, records(spark, rows), tmp_path / "s"))
    expected = [
        ("out", str(n), None if value is None else value.decode(), [("sent_at", b"99")] if n else None)
        for n, value in enumerate(values)
    ]
    assert [row[:2] for row in found] == [row[:2] for row in expected]
    assert found[2][2] is None
    assert found == expected
    assert sorted(engine.hellos) == [(7, 2, 0)] * 2


def test_keys_and_headers_come_where_they_are_asked_for(spark: "SparkSession", tmp_path: Path) -> None:
    """Both, either or none of them; without a key, without headers, and with one header twice."""
    headers = [
        [{"key": "tenant", "value": b"a"}, {"key": "tenant", "value": None}],
        None,
        [],
        [{"key": "ü", "value": b""}],
    ]
    keys = [b"k", None, b"", b"\xff"]
    made = [
        ("events", 0, n, NOON, b"v" * n, None, key, of) for n, (key, of) in enumerate(zip(keys, headers, strict=True))
    ]
    given = spark.createDataFrame(made, f"{INPUT}, key binary, headers array<struct<key string, value binary>>")
    expected = {"key": keys, "headers": [of or [] for of in headers]}
    for at, asked in enumerate([("key", "headers"), ("key",), ("headers",), ()]):
        engine = Echo(tmp_path / f"s{at}")
        engine.start()
        others = {"key", "headers"} - set(asked)
        found = through(spark, given.coalesce(1).drop(*others), tmp_path / f"s{at}")
        assert [row[2] for row in found] == ["v" * n for n in range(4)]
        assert engine.beside == {name: expected[name] for name in asked}


def test_a_slow_engine_is_waited_for_and_nothing_is_lost(spark: "SparkSession", tmp_path: Path) -> None:
    engine = Echo(tmp_path / "s")
    engine.start()
    rows = [(0, n, b"%d" % n * 200, None) for n in range(50_000)]
    found = through(spark, records(spark, rows), tmp_path / "s")
    assert len(found) == engine.received == 50_000
    assert [row[1] for row in found] == [str(n) for n in range(50_000)]


def test_a_task_fails_with_its_engine(spark: "SparkSession", tmp_path: Path) -> None:
    Echo(tmp_path / "s", die=True).start()
    with pytest.raises(Exception, match="the engine process has ended"):
        through(spark, records(spark, [(0, 1, b"x", None)]), tmp_path / "s")


def test_a_task_fails_with_its_input(spark: "SparkSession", tmp_path: Path) -> None:
    """An error of the source is the cause that is reported, and the engine is not told that the part has ended."""
    engine = Echo(tmp_path / "s")
    engine.start()
    broken = spark.range(0, 1, 1, 1).selectExpr(
        "'events' topic",
        "0 partition",
        "id offset",
        "cast(raise_error('the broker is gone') as timestamp) timestamp",
        "cast('x' as binary) value",
        "id sent_at",
    )
    with pytest.raises(Exception, match="the broker is gone"):
        through(spark, broken, tmp_path / "s")
    assert engine.hellos == []


def test_the_jar_is_what_its_source_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever can write to the folder of the jars cannot hide another operator in it from this test."""
    with zipfile.ZipFile(bridge_jar()) as jar:
        found = {name.removesuffix(".class").replace("/", "."): jar.read(name) for name in jar.namelist()}
    assert found == bytecode(SOURCE.read_text())
    changed = tmp_path / SOURCE.name
    changed.write_text(SOURCE.read_text() + "\n// changed\n")
    before = bridge_jar()
    monkeypatch.setattr(bridge, "SOURCE", changed)
    assert bridge_jar() != before


def test_a_wrong_source_is_an_error() -> None:
    with pytest.raises(JarsError, match=r"EngineBridge.java cannot be compiled: .*Line 1"):
        bytecode("class Wrong { int x = ; }")
