"""Purpose: prime versions of rules whose windows reach back before the state that would serve them (S5.7).

How it works: such a version is accepted without an effective time. Once the buckets know it, and so evict nothing that
it needs, a process of its own (export_history.py) writes the events that they lack beside their logs. Then the version
is answered ACTIVE with its effective time and the name of the export, and the buckets take it in with that answer
(buckets/primed_state.py). One export runs at a time. If it fails it is tried again; a job that starts again exports
again what no answer names yet.

For measures with a resolution the export has steps instead of events: so what is written, and taken in, is as little as
what the state keeps of them (S14.3).

What it does not do: read events, or change the state.

Known limitation: the first batch of a bucket with the history takes as long as its engine needs to take it in.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

import structlog

from nightjar.contracts.job_progress import Priming
from nightjar.rules.durations import format_duration
from nightjar.rules.retention import widest
from nightjar.rules.rulebook import ShuffleKey
from nightjar.rules.timestamps import MIN_TIMESTAMP, iso_text
from nightjar.rules.versions import Primed, RuleVersion
from nightjar.streaming.config import JobConfig
from nightjar.streaming.partitioning import buckets_of
from nightjar.streaming.priming.coverage import Coverage, Needs, Since, needs_of
from nightjar.streaming.priming.export_history import Request
from nightjar.streaming.priming.history import Ready
from nightjar.streaming.state.checkpoint import Checkpoint
from nightjar.streaming.state.metadata import Metadata
from nightjar.streaming.state.state_files import export_of
from nightjar.streaming.state.statelog import FIRST_INSTANT, NOTHING

_log = structlog.get_logger(__name__)

# Seconds. Heads are files that every batch replaces.
_LOOK_SECONDS = 1.0
_RETRY_SECONDS = 60.0
# An export that no version wants any more by then (seconds) is removed.
_UNCLAIMED_SECONDS = 60.0


class Primer:
    """Decides which versions are primed, and runs the exports. It is the job's `History`."""

    def __init__(self, config: JobConfig, checkpoint: Checkpoint) -> None:
        self._config = config
        self._checkpoint = checkpoint
        self._coverages: dict[ShuffleKey, tuple[float, Coverage | None]] = {}
        self._clocks: dict[str, int] = {}  # the latest that were published (µs), by stream
        self._wanted: dict[ShuffleKey, list[Needs]] = {}  # of versions that wait
        self._needs: dict[tuple[tuple[tuple[str, int], int], ...], Needs] = {}
        self._running: _Export | None = None
        self._done: _Done | None = None
        self._retry_at = 0.0

    def restart(self) -> None:
        """Another run of the query begins: what the one before it had is no longer of use."""
        self._coverages.clear()

    def note_clocks(self, clocks: Mapping[str, int]) -> None:
        """Clocks (µs, by stream) that were published."""
        self._clocks |= clocks

    @property
    def exports(self) -> list[str]:
        """The exports that run, or that no answer names yet."""
        of = [self._running.request] if self._running else []
        return [request.name for request in (*of, *([self._done.request] if self._done else []))]

    def lacking(self, version: RuleVersion, key: ShuffleKey, naming: Sequence[RuleVersion] = ()) -> str | None:
        """See History."""
        needs = self._of(version, naming)
        if not needs or self._has(needs, version, key):
            return None
        reach = max(map(widest, (version, *naming)))
        return (
            f"its windows reach back {format_duration(reach)}, before the events that the job has: it "
            "takes effect once it is primed with those before"
        )

    def _has(self, needs: Needs, version: RuleVersion, key: ShuffleKey) -> bool:
        """Whether the state of a shuffle key has all that a new version needs, or nobody looks."""
        coverage = self._coverage(key)
        if coverage is None:  # until its first batch a key that was added has nothing, and then not what was before
            return not self._looks_at(key) or not self._lacks_before(key)
        # the buckets may be given the clocks that are under way before they know the version
        settled = max(coverage.settled, self._clocks.get(key.stream, FIRST_INSTANT) - self._lateness(key))
        return coverage.has(needs.since(max(version.effective, settled)), settled)

    def find(
        self, version: RuleVersion, key: ShuffleKey, naming: Sequence[RuleVersion] = (), *, is_known: bool
    ) -> Ready | None:
        """See History."""
        needs = self._of(version, naming)
        if not self._config.priming_rate or not needs:
            return Ready()
        coverage = self._coverage(key)
        if coverage is None or not is_known:
            return None
        since = needs.since(coverage.settled)
        if coverage.has(since, coverage.settled):
            return Ready(Primed(max(since.earliest if needs.steps else coverage.horizon, MIN_TIMESTAMP)))
        if self._done is not None:
            done, has = self._done.request, self._done.has
            if done.shuffle_key == key and has.covers(since):
                self._done = None
                return Ready(Primed(max(has.earliest, MIN_TIMESTAMP), done.name))
        self._wanted.setdefault(key, []).append(needs)
        return None

    def _of(self, version: RuleVersion, naming: Sequence[RuleVersion]) -> Needs:
        """What a version and those that count its violations need."""
        about = tuple((each.key, each.effective) for of in (version, *naming) for each in (of, *of.named))
        if about not in self._needs:
            self._needs[about] = needs_of(version, self._config.streams[version.rule.stream], naming)
        return self._needs[about]

    def step(self) -> None:
        """Start the next export if one is wanted, and see to the one that runs."""
        if self._running is not None:
            self._see_to(self._running)
        elif self._done is not None:
            if time.monotonic() > self._done.at + _UNCLAIMED_SECONDS:
                self._remove(self._done.request)
                self._done = None
        elif self._wanted and time.monotonic() >= self._retry_at:
            self._start(*self._wanted.popitem())
        if self._running is not None or self._done is not None:
            self._wanted.clear()

    def report(self) -> Priming | None:
        """What is being primed; None if nothing is."""
        if self._running is None:
            return None
        request = self._running.request
        since = iso_text(max(request.since, MIN_TIMESTAMP))
        return {
            "stream": request.stream.name,
            "route": request.shuffle_key.field,
            "since": since,
            "read": self._running.read,
        }

    def close(self) -> None:
        """End the export that runs."""
        if self._running is not None:
            self._running.end()

    def _lateness(self, key: ShuffleKey) -> int:
        return self._config.streams[key.stream].allowed_lateness

    @property
    def _metadata(self) -> Metadata:
        found = self._checkpoint.metadata
        assert found is not None  # noqa: S101  whose shuffle keys are looked at has one
        return found

    def _looks_at(self, key: ShuffleKey) -> bool:
        metadata = self._checkpoint.metadata
        return bool(self._config.priming_rate) and metadata is not None and key in metadata.shuffle_keys

    def _lacks_before(self, key: ShuffleKey) -> Mapping[int, int]:
        """See Metadata; of a shuffle key of the checkpoint."""
        number = self._metadata.shuffle_keys.index(key)
        return self._metadata.lacks_before(number, self._config.streams[key.stream])

    def _coverage(self, key: ShuffleKey) -> Coverage | None:
        """That of the shuffle key by the last committed batch; None where it is not known, or does not matter."""
        if not self._looks_at(key):
            return None
        at, known = self._coverages.get(key, (0.0, None))
        if known is None or time.monotonic() > at + _LOOK_SECONDS:
            known = self._look(key)
            self._coverages[key] = time.monotonic(), known
        return known

    def _look(self, key: ShuffleKey) -> Coverage | None:
        """That of a shuffle key of the checkpoint, looked up now."""
        buckets = self._config.buckets
        of_stream = {n: other for n, other in enumerate(self._metadata.shuffle_keys) if other.stream == key.stream}
        try:
            of = {
                other: self._checkpoint.committed_heads(buckets_of(n, other, buckets)) for n, other in of_stream.items()
            }
        except RuntimeError:  # a batch was committed meanwhile
            return None
        heads = of[key]
        if any(head.version == NOTHING for head in heads):
            return None
        lacks = {} if all(head.primed for head in heads) else self._lacks_before(key)
        # a new shuffle key is given its first clock later than the others
        settled = max(min(head.settled for head in each) for each in of.values())
        return Coverage(tuple(heads), lacks, settled)

    def _start(self, key: ShuffleKey, needs: list[Needs]) -> None:
        config, checkpoint = self._config, self._checkpoint
        stream = config.streams[key.stream]
        # before the heads: what these hold as late may be later
        until = stream.by_partition(checkpoint.committed_offsets())
        coverage = self._look(key)
        if coverage is None:
            return
        has = Since.of_all(each.since(coverage.settled) for each in needs)
        request = Request(
            config,
            uuid.uuid4().hex[:12],
            self._metadata.shuffle_keys.index(key),
            key,
            checkpoint.state,
            until,
            coverage.lacking(has),
            tuple(head.first for head in coverage.heads),
        )
        self._running = _Export(request, has)
        since = iso_text(max(request.since, MIN_TIMESTAMP))
        _log.info("priming", stream=key.stream, shuffle_key=key.field, since=since, lake=str(config.lake))

    def _see_to(self, export: _Export) -> None:
        events = export.result()
        if events is None:
            return
        self._running = None
        request = export.request
        if events >= 0:
            _log.info("primed", stream=request.stream.name, shuffle_key=request.shuffle_key.field, events=events)
            self._done = _Done(request, export.has, time.monotonic())
            return
        self._remove(request)
        self._retry_at = time.monotonic() + _RETRY_SECONDS
        _log.warning(
            "priming failed and is tried again: the rules that wait for it are not in effect",
            stream=request.stream.name,
            shuffle_key=request.shuffle_key.field,
            retry_seconds=_RETRY_SECONDS,
            remedy="Its error is above. With priming_rate = 0 rules start without this history",
        )

    def _remove(self, request: Request) -> None:
        for bucket in buckets_of(request.number, request.shuffle_key, self._config.buckets):
            folder = request.state / str(bucket)
            for file in folder.iterdir() if folder.is_dir() else ():
                if export_of(file.name) == request.name:
                    file.unlink(missing_ok=True)


@dataclass(frozen=True)
class _Done:
    """An export that no answer names yet. has: what it has; at: when it ended, by time.monotonic."""

    request: Request
    has: Since
    at: float


class _Export:
    """The process of one export. has: what it writes; read: events so far."""

    def __init__(self, request: Request, has: Since) -> None:
        self.request, self.has = request, has
        self.read = 0
        self._events: int | None = None
        # at the lowest priority from the first: its imports would delay a micro-batch
        command = ["nice", "-n", "19", sys.executable, "-m", "nightjar.streaming.priming.export_history"]
        own = {**os.environ, "POLARS_MAX_THREADS": "1"}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=own)
        self._reader = threading.Thread(target=self._follow, args=[self._process.stdout], daemon=True)
        self._reader.start()
        with contextlib.suppress(BrokenPipeError):  # it has failed
            assert self._process.stdin is not None  # noqa: S101  a pipe
            pickle.dump(request, self._process.stdin)
            self._process.stdin.flush()  # it stays open: the process ends when it is closed

    def _follow(self, lines: IO[bytes]) -> None:
        for line in lines:
            report = json.loads(line)
            self.read, self._events = report.get("read", self.read), report.get("events")

    def result(self) -> int | None:
        """The number of events that were written, -1 if it failed; None while it runs."""
        if self._process.poll() is None:
            return None
        self._reader.join()  # what it has reported
        self.end()
        return -1 if self._process.returncode or self._events is None else self._events

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None  # noqa: S101  a pipe
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
