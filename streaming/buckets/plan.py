"""The plan of one run of the query, for all its buckets; the tasks bring it to the engine processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property

from nightjar.contracts.rule_status import fold, read_answer
from nightjar.contracts.topics import Topics
from nightjar.rules.rulebook import Answered, Record, RuleBook, ShuffleKey
from nightjar.rules.streams import Stream, tables_of
from nightjar.storage.lease import Fence
from nightjar.storage.paths import AnyPath
from nightjar.streaming.buckets.table_follower import TableFollower, TablesTopic


@dataclass(frozen=True)
class BucketPlan:
    """What the buckets of one run of the query have in common."""

    checkpoint: str
    """Its name, so that two jobs in one worker never share an engine."""
    run_id: str
    state: AnyPath
    """The folder of the buckets' files, which every Spark process sees."""
    streams: Mapping[str, Stream]
    shuffle_keys: tuple[ShuffleKey, ...]
    buckets: int
    """Of each shuffle key."""
    topics: Topics
    rules: tuple[Record, ...]
    """The answers on `rule-status` before the first one that this run reads."""
    alerts_per_rule_and_hour: int | None = None
    """Those after which a bucket marks further ones; None: never."""
    fence: Fence | None = None
    """See JobConfig."""
    tables: TablesTopic | None = None
    """None: no table is declared."""
    tables_read: int = 0
    """The position up to which the query had read changes of tables when the run began: a new bucket gets no others."""

    def shuffle_key_of(self, bucket: int) -> ShuffleKey:
        """The shuffle key whose bucket this is: shuffle key r has the buckets from r * buckets on."""
        return self.shuffle_keys[bucket // self.buckets]

    def stream_of(self, bucket: int) -> Stream:
        """The stream whose events the bucket takes in."""
        return self.streams[self.shuffle_key_of(bucket).stream]

    @property
    def table_follower(self) -> TableFollower | None:
        """The tables' rows in this process; None if no table is declared."""
        return None if self.tables is None else self.tables.follower(tables_of(self.streams))

    def rule_book(self) -> RuleBook:
        """The rules as they were when this run began."""
        book = RuleBook(self.streams)
        for answer in self.rules:
            fold(book, answer, self._read)
        return book

    @cached_property
    def _read(self) -> Callable[[bytes], Answered | None]:
        """Reads each answer once for all buckets of a process."""
        return cache(read_answer)
