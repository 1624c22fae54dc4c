"""The buckets that an engine process keeps in memory, and how one is brought up to date with its log.

How it works: by the log's head a bucket in memory is up to date, has seen a beginning of the log (then it reads the
rest), or neither (then it is rebuilt). A bucket that is taken is removed until it is put back, so one whose task fails
is never used again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nightjar.rules.engine.carried import load_kernels
from nightjar.rules.rulebook import Record
from nightjar.streaming.buckets.bucket import Bucket, Counts
from nightjar.streaming.buckets.plan import BucketPlan
from nightjar.streaming.state.state_files import BucketFiles
from nightjar.streaming.state.statelog import NOTHING, Head, StateLog

# How much longer than a count of the retained events the time until the next one is, and the longest, in seconds.
_COUNTING, _LONGEST_UNCOUNTED = 200, 60.0


@dataclass
class Resident:
    """A bucket in memory."""

    bucket: Bucket
    version: int = NOTHING
    token: str = ""
    """`version` and `token`: of the head that it matches."""
    reported_at: float = 0.0
    restored: int = 0
    """Entries of the log read since the bucket last reported, at `reported_at` (time.monotonic)."""
    _retained: dict[tuple[str, ...], int] = field(default_factory=dict)
    _count_at: float = 0.0
    """When the retained events are counted again (time.monotonic)."""

    @property
    def retained(self) -> dict[tuple[str, ...], int]:
        """How many events each group-by still needs, as last counted. Counting reads all that is held, which would
        delay the alerts of a large state once a second: so it may take one part in _COUNTING of the time."""
        now = time.monotonic()
        if now >= self._count_at:
            self._retained = self.bucket.engine.retained
            self._count_at = now + min(_COUNTING * (time.monotonic() - now), _LONGEST_UNCOUNTED)
        return self._retained

    def read(self, head: Head, files: BucketFiles) -> None:
        """Read the entries of the log that the bucket has not seen."""
        bucket, log = self.bucket, StateLog(files, self.bucket.stream.event_time)
        bucket.receive(_record(written) for written in _received(head, files))
        missing = head.missing(self.version)
        deltas = (log.read(entry) for entry in missing)
        # one that has seen a beginning of the log has all steps (see Head.holds)
        bucket.engine.restore(
            (delta if self.version == NOTHING else replace(delta, folds={}) for delta in deltas),
            sum(entry.events for entry in missing),
        )
        self.restored += len(missing)
        bucket.engine.resume(head.position)
        bucket.counts = Counts(**head.counts)
        bucket.failed = set(head.failed)
        if bucket.cap is not None:
            bucket.cap.restore(head.capped)
        self.at(head)

    def at(self, head: Head) -> None:
        """Mark it as matching this head."""
        self.version, self.token = head.version, head.tokens.get(head.version, "")


class Residents:
    """The buckets of one run of the query. Another run has others: it resumes from the committed state."""

    def __init__(self, plan: BucketPlan) -> None:
        self._plan = plan
        self._of: dict[int, Resident] = {}

    def take(self, number: int, head: Head, files: BucketFiles) -> Resident:
        """The bucket of this number, up to date with the head: from memory, if that one has seen a beginning of the
        log."""
        plan, resident = self._plan, self._of.pop(number, None)
        if resident is not None and head.horizon < resident.bucket.engine.horizon:
            resident = None  # another engine took in history (primed_state.py), from before what this one has evicted
        if resident is None or not head.holds(resident.version, resident.token):
            load_kernels()
            cap, follower = plan.alerts_per_rule_and_hour, plan.table_follower
            tables = None if follower is None else follower.up_to(head.tables)
            of = plan.stream_of(number), plan.shuffle_key_of(number), plan.rule_book()
            resident = Resident(Bucket(*of, cap, tables))
        if resident.version < head.version:
            resident.read(head, files)
        return resident

    def put_back(self, number: int, resident: Resident) -> None:
        """Keep a bucket for the next batch."""
        self._of[number] = resident


def receive(
    bucket: Bucket, payloads: Iterable[bytes], since: int, head: Head, files: BucketFiles
) -> tuple[str, list[str]]:
    """Fold answers (PayloadKind.RULE), and keep them in the state until the next start if one changes anything; returns
    the name of their entry, and the exports that `Bucket.receive` does.

    since: the offset of the last answer that the next start finds without the state.
    """
    written = (json.loads(payload) for payload in payloads)
    fresh = sorted((m for m in written if m["offset"] >= bucket.book.next_offset), key=lambda m: m["offset"])
    if not fresh:
        return head.rules, []
    changed, exports = bucket.receive(_record(answer) for answer in fresh)
    if not changed:  # as most that say that a version is in force: many answers at once, and a file for each bucket
        return head.rules, []
    kept = [answer for answer in _received(head, files) if answer["offset"] > since]
    return files.put_new(json.dumps(kept + fresh).encode()), exports


def _record(written: Mapping[str, Any]) -> Record:
    return Record(written["offset"], written["arrival"], written["value"].encode())


def _received(head: Head, files: BucketFiles) -> list[dict[str, Any]]:
    """The answers that this bucket has received since an earlier start of the job."""
    found: list[dict[str, Any]] = json.loads(files.get(head.rules)) if head.rules else []
    return found
