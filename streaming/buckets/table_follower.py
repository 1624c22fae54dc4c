"""The rows of tables in an engine process: read from their topic, once for all of its buckets.

How it works: the topic has one partition, so a position in it says which changes are known. In micro-batches the query
reads the topic with its other control records, and passes on only the position up to which a batch has read, which is
in Spark's offsets; in real time the engine process asks for the topic's end, and logs it. So a repeated batch has the
same. The changes themselves are read here, up to that position at least: what an event sees depends on positions, not
on how far this has read (rules/engine/table_rows.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog
from kafka import KafkaConsumer, TopicPartition

from nightjar.contracts.table_changes import ChangeReader
from nightjar.ingestion.offsets import end_offsets
from nightjar.rules.engine.table_rows import TableRows
from nightjar.rules.rulebook import Record
from nightjar.rules.types import FieldType

_log = structlog.get_logger(__name__)

_POLL_MS = 10_000
_MOST_RECORDS = 5000
_FETCH_BYTES = 8 << 20


@dataclass(frozen=True)
class TablesTopic:
    """Where the changes of tables are. client: options of kafka-python, which may hold passwords."""

    name: str
    client: Mapping[str, object] = field(repr=False)

    def follower(self, tables: Mapping[str, FieldType]) -> TableFollower:
        """The one of this process."""
        key = repr((self.name, sorted(self.client.items()), sorted(tables.items())))
        if key not in _followers:
            _followers[key] = TableFollower(self, tables)
        return _followers[key]


class TableFollower:
    """The rows, as far as they have been read: to the topic's end at first."""

    def __init__(self, topic: TablesTopic, tables: Mapping[str, FieldType]) -> None:
        self._topic = topic
        self.rows, self._changes = TableRows(tables), ChangeReader(tables)
        # kept, since connecting takes longer than what a change may wait for
        self._consumer = self._connected()
        self._read(self.end())

    @property
    def _place(self) -> TopicPartition:
        return TopicPartition(self._topic.name, 0)

    def end(self) -> int:
        """The position after the last change that the topic has now.

        Raises:
            KafkaError: the brokers do not respond.
        """
        return end_offsets(self._consumer, [self._place])[self._place]

    def up_to(self, position: int) -> TableRows:
        """The rows, with all changes before the position.

        Raises:
            RuntimeError: the topic does not have them any more.
        """
        if position > self.rows.position:
            self._read(position)
        return self.rows

    def _connected(self) -> KafkaConsumer:
        client: dict[str, Any] = dict(self._topic.client)
        consumer = KafkaConsumer(
            enable_auto_commit=False,
            max_partition_fetch_bytes=_FETCH_BYTES,
            isolation_level="read_committed",
            auto_offset_reset="none",
            **client,
        )
        consumer.assign([self._place])
        consumer.seek(self._place, 0)
        return consumer

    def _read(self, end: int) -> None:
        consumer = self._consumer
        while (at := consumer.position(self._place)) < end:
            found = consumer.poll(_POLL_MS, max_records=_MOST_RECORDS).get(self._place, [])
            if not found and consumer.position(self._place) == at:
                raise RuntimeError(f"topic {self._topic.name} does not give its records from offset {at} on")
            records = (Record(each.offset, 1000 * each.timestamp, each.value or b"") for each in found)
            self.rows.add(self._changes.read(records), consumer.position(self._place))
        _log.info("changes of tables were read", topic=self._topic.name, up_to=self.rows.position)


# Those of this process. Another run of the query has other buckets, and the same rows.
_followers: dict[str, TableFollower] = {}
