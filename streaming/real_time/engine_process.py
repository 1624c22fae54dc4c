"""Purpose: the engine process of a real-time query: groups what its tasks send, evaluates it, and replies.

How it works: one loop over the sockets of the tasks and of the driver. A group is everything that has come from all
tasks when the last group is done, so groups are small at low rates and large when the engine is behind. A group is
appended to the order log (state/order_log.py) before it is evaluated, and is on the disk before its results leave.
Groups that an earlier run has logged come first, once the tasks have read their records again.

An answer to a rule message must be known to the events that arrive after it (S5.3), and partitions have no order among
each other. So the driver asks the engine to *hold*, publishes the answer, and *releases* it with the answer as it was
read back: the engine evaluates nothing in between. The task that reads answers brings it once more, or first.
Changes of tables come from anybody. So once the engine knows which events a group has, it asks Kafka how far these go
(S22.4): what had arrived before the events is before that position. The position is logged like a range of records;
what the task that reads the topic brings is left.

When all tasks have ended their part, the buckets store their state; only then do the tasks end, and Spark commits.
Until the next batch's tasks run, the engine reads events itself (between_batches.py), which are that batch's.

What it does not do: survive. If a task or the driver ends early, it does too, and the query fails: the next run
evaluates the same groups again.
"""

from __future__ import annotations

import contextlib
import gc
import selectors
import shutil
import socket
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa
import structlog

from nightjar.rules.engine.carried import load_kernels
from nightjar.rules.rulebook import Record
from nightjar.streaming.buckets.packer import Packer
from nightjar.streaming.buckets.plan import BucketPlan
from nightjar.streaming.real_time.between_batches import Brokers
from nightjar.streaming.real_time.frames import STORED, Records, TaskConnection, as_records, encoded, replies, table
from nightjar.streaming.real_time.group_times import GroupTimes
from nightjar.streaming.real_time.groups import GroupEvaluator
from nightjar.streaming.state.order_log import Group, OrderLog

_log = structlog.get_logger(__name__)

# Bytes that one read takes from a socket, and of a group.
_READ, _LARGEST_GROUP = 1 << 20, 16 << 20
_BACKLOG = 1024

# Seconds before the end of a batch when most of its state is written.
_BEFORE_END = 2.0

# Seconds after which a thread that writes state lets the evaluation go on.
_SWITCH_SECONDS = 0.0005

# Seconds for which a read between two batches waits: meanwhile neither tasks nor the driver are heard.
_TURN = 0.001

# Seconds between two reports to the driver (GroupTimes).
_REPORT_SECONDS = 1.0

# HOLD: from the driver, who waits for DONE, which also says that the engine listens. REST: from the driver: from now on
# events wait between two batches.
DONE, HOLD, REST = "done", "hold", "rest"


@dataclass(frozen=True)
class Release:
    """From the driver: the records of `rule-status` that it has read since it asked to hold."""

    answers: tuple[Record, ...]


@dataclass(frozen=True)
class WarmUp:
    """What an engine process evaluates before it listens, so that its first group does not wait for what is compiled or
    loaded then."""

    plan: BucketPlan
    packer: Packer
    records: tuple[pa.Table, ...]
    """Groups (frames.SCHEMA)."""

    def run(self) -> None:
        """Evaluate the groups, with state in a folder that is removed."""
        with tempfile.TemporaryDirectory(prefix="nightjar-warm-up-") as folder, ThreadPoolExecutor(1) as writing:
            evaluator = GroupEvaluator(replace(self.plan, state=Path(folder)), self.packer, writing)
            for group in self.records:
                encoded(replies(evaluator.evaluate(group, 1, self.plan.run_id, 0)))
            evaluator.store()


@dataclass(frozen=True)
class EnginePlan:
    """What the driver gives to an engine process."""

    plan: BucketPlan
    packer: Packer
    path: str
    """Of the socket that tasks connect to."""
    answered: int
    """The offset of `rule-status` from which on the query reads."""
    needed: int
    """That up to which answers must be known before the first event."""
    gather: float
    """Seconds for which a group waits for more records after its first one."""
    batch_seconds: float
    """How long Spark lets a batch last."""
    only_one: bool
    """Whether nothing is to be evaluated after the first batch."""
    warm_up: WarmUp | None
    brokers: Brokers | None = None
    """None: events wait while no batch runs."""
    most_waiting: int = 64 << 20
    """Bytes that wait for their group before events are left in their sockets."""


class Engine:
    """The loop. driver: the connection to the driver."""

    def __init__(self, given: EnginePlan, driver: Connection) -> None:
        self._given, self._driver = given, driver
        self._run_id = given.plan.run_id
        self._evaluator = GroupEvaluator(given.plan, given.packer, ThreadPoolExecutor(1))
        self._control = {given.packer.answers_topic, given.packer.clock_topic}
        self._tables = given.plan.table_follower
        self._tables_known = 0
        """The position up to which changes of tables are known to the last group."""
        self._answered, self._needed = given.answered, given.needed
        self._is_held = self._is_over = self._rests = False
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(given.path)
        self._listener.listen(_BACKLOG)
        self._chooser = selectors.DefaultSelector()
        self._chooser.register(self._listener, selectors.EVENT_READ)
        self._chooser.register(driver, selectors.EVENT_READ)
        self._syncing = ThreadPoolExecutor(1)
        self._tasks: list[TaskConnection] = []
        self._room = bytearray(_READ)
        self._version: int | None = None
        """Of the batch that runs, or that comes next and has groups already."""
        self._is_running = False
        """Whether a task of it has come, so that the batch before it is committed."""
        self._between = None if given.brokers is None else given.brokers.connected()
        self._ends: dict[tuple[str, int], int] = {}
        """Of each partition of events the offset after the last record that has come."""
        self._of_tasks: dict[tuple[str, int], int] = {}
        """The same of what the batch's tasks have brought."""
        self._ahead: dict[tuple[str, int], int] = {}
        """The same of what was read between two batches, and tasks may not have brought yet."""
        self._write_at: float | None = None
        self._logged: deque[Group] = deque()
        self._logged_ends: dict[tuple[str, int], int] = {}
        """Of each partition the offset after its last record in a logged group."""
        self._log: OrderLog | None = None
        self._waiting: dict[tuple[str, int], deque[Records]] = {}
        self._size = 0
        """Bytes of the waiting records."""
        self._full: list[TaskConnection] = []
        """The tasks that are not read from."""
        self._since: float | None = None
        """When the first of the waiting records came."""
        self._times, self._report_at = GroupTimes(), time.monotonic() + _REPORT_SECONDS

    def run(self) -> None:
        """Serve until the driver closes its connection, or a task ends early.

        Raises:
            RuntimeError: see `_begin_batch`, `_end_batch` and BucketBatch.
        """
        try:
            self._serve()
        except (EOFError, ConnectionError):
            _log.info("the engine process ends: a task or the driver has ended before the batch")

    def _serve(self) -> None:
        self._driver.send(DONE)
        is_behind = False
        while True:
            for key, _ in self._chooser.select(0 if is_behind or self._reads_itself else self._timeout()):
                if key.fileobj is self._driver:
                    if not self._heed():
                        return
                elif key.fileobj is self._listener:
                    self._accept()
                else:
                    self._read(key.data)
            self._read_on()
            if self._reads_itself:
                self._read_events()
            is_behind = self._evaluate_logged()
            if self._patience() == 0:
                self._evaluate_next()
            if self._times.groups and time.monotonic() > self._report_at:
                self._report()
            if self._write_at is not None and time.monotonic() > self._write_at:
                self._write_at = None
                self._evaluator.write_ahead()
            if self._is_running and not is_behind:
                self._end_batch()

    def _report(self) -> None:
        """Tell the driver of the groups since the last report."""
        with contextlib.suppress(OSError):  # a driver that has ended is found out next
            self._driver.send(self._times)
        self._times, self._report_at = GroupTimes(), time.monotonic() + _REPORT_SECONDS

    def _heed(self) -> bool:
        """Do what the driver says; False once it has closed the connection."""
        try:
            said = self._driver.recv()
        except EOFError:
            return False
        if said == HOLD:
            self._is_held = True
            self._driver.send(DONE)
        elif said == REST:
            self._rests = True
        else:
            self._is_held = False
            self._know(said.answers)
        return True

    def _know(self, answers: Sequence[Record]) -> None:
        """Take in the driver's answers; if others before them are still to come, wait for the task that brings all."""
        if answers and answers[0].offset <= self._answered:
            self._wait_for_turn(as_records(self._given.packer.answers_topic, answers))
        elif answers:
            self._needed = max(self._needed, answers[-1].offset + 1)

    def _wait_for_turn(self, records: Records) -> None:
        """Add records to those that wait, unless they are answers or events that have come, or changes of tables."""
        if records.topic == self._given.packer.tables_topic:
            return
        is_answer, place = records.topic == self._given.packer.answers_topic, (records.topic, records.partition)
        if is_answer or records.topic not in self._control:
            _, new = records.split(self._answered if is_answer else self._ends.get(place, 0))
            if new is None:
                return
            records = new
            if is_answer:
                self._answered = int(new.offsets[-1]) + 1
            else:
                self._ends[place] = int(new.offsets[-1]) + 1
        self._waiting.setdefault((records.topic, records.partition), deque()).append(records)
        self._size += records.size
        self._since = self._since or time.monotonic()

    def _accept(self) -> None:
        task = TaskConnection(self._listener.accept()[0])
        self._tasks.append(task)
        self._chooser.register(task.socket, selectors.EVENT_READ, task)

    def _read(self, task: TaskConnection) -> None:
        if self._waits_for_room(task):
            self._chooser.unregister(task.socket)
            self._full.append(task)
            return
        was_known = task.hello is not None
        records = task.receive(self._room)
        if task.hello is not None and not was_known:
            self._begin_batch(task.hello.batch + 1, task.hello.attempt)
        if records is not None:
            place = records.topic, records.partition
            self._of_tasks[place] = int(records.offsets[-1]) + 1
            if self._between is not None:
                self._between.leave(place)
            self._wait_for_turn(records)
        if task.has_ended:
            self._chooser.unregister(task.socket)

    def _read_on(self) -> None:
        """Read again from the tasks that need not wait any more."""
        waiting = [task for task in self._full if self._waits_for_room(task)]
        for task in self._full:
            if task not in waiting:
                self._chooser.register(task.socket, selectors.EVENT_READ, task)
        self._full = waiting

    def _waits_for_room(self, task: TaskConnection) -> bool:
        """Whether the task's events stay in its socket for now: so many wait, and no logged group lacks any of them."""
        if task.place is None or task.place[0] in self._control or self._size <= self._given.most_waiting:
            return False
        if any(each.has_ended for each in self._tasks):  # the batch ends: there is little more, and all of it is needed
            return False
        return not self._logged or self._end_of(task.place) >= self._logged_ends.get(task.place, 0)

    @property
    def _is_blocked(self) -> bool:
        """Whether nothing may be evaluated before more is read, or before the driver says so."""
        nobody_publishes = not self._is_running and self._between is None
        is_behind = self._answered < self._needed or bool(self._logged)
        return self._is_over or self._is_held or is_behind or nobody_publishes

    @property
    def _reads_itself(self) -> bool:
        """Whether the engine reads events: what waits for its turn is not too much yet."""
        return self._between is not None and self._between.is_reading and self._size <= self._given.most_waiting

    def _read_events(self) -> None:
        """Take in the events that have come while no task reads them."""
        assert self._between is not None  # noqa: S101  it is reading
        for records in self._between.read(0 if self._patience() == 0 else _TURN):
            self._wait_for_turn(records)
            place = records.topic, records.partition
            self._ahead[place] = self._ends[place]

    def _begin_batch(self, version: int, attempt: int) -> None:
        """Begin the batch, as its first task says which it is.

        Raises:
            RuntimeError: a task is repeated, whose records are in groups already.
        """
        if attempt or self._version not in (None, version):
            raise RuntimeError(f"attempt {attempt} of a task of batch {version - 1} comes in batch {self._version}")
        if self._version is None:
            self._open_log(version)
        if not self._is_running:
            self._is_running = True
            self._write_at = time.monotonic() + self._given.batch_seconds - _BEFORE_END
            self._opened.remove_earlier()
            self._evaluator.remove_earlier()
            if self._between is not None:
                self._between.leave_soon()

    def _open_log(self, version: int, ahead: Mapping[tuple[str, int], int] | None = None) -> None:
        """Open the order log of the batch of this version, whose groups come first. ahead: of which events the state
        has more than Spark's offsets say; None: what the log says."""
        folder = self._given.plan.state
        assert isinstance(folder, Path)  # noqa: S101  the driver refuses an object store
        self._version, self._log = version, OrderLog(folder, version)
        if ahead is None:
            ahead = {(topic, number): end for topic, of in self._log.ahead.items() for number, end in of.items()}
            self._ends |= ahead
        elif ahead:
            of_topics = dict[str, dict[int, int]]()
            for (topic, number), end in ahead.items():
                of_topics.setdefault(topic, {})[number] = end
            self._log.begin_ahead(of_topics)
            self._log.sync()
        self._ahead = dict(ahead)
        self._logged.extend(self._log.groups)
        for group in self._logged:
            self._logged_ends.update((place, end) for place, (_, end) in group.places())
        if self._logged:
            _log.info("evaluating what an earlier run has logged", groups=len(self._logged))

    @property
    def _opened(self) -> OrderLog:
        assert self._log is not None  # noqa: S101  of the batch that runs or comes next
        return self._log

    def _timeout(self) -> float | None:
        """Seconds after which there is something to do, even if nothing comes; None: there is nothing."""
        due = [self._report_at] if self._times.groups else []
        due += [] if self._write_at is None else [self._write_at]
        waits = [max(0.0, at - time.monotonic()) for at in due]
        patience = self._patience()
        return min(waits if patience is None else [*waits, patience], default=None)

    def _patience(self) -> float | None:
        """Seconds until the next group may be evaluated; None: not before something happens."""
        if self._since is None or self._is_blocked or self._version is None:
            return None
        return max(0.0, self._since + self._given.gather - time.monotonic())

    def _evaluate_logged(self) -> bool:
        """Evaluate the next logged group once all of its records are here."""
        if not self._logged:
            return False
        group = self._logged[0]
        wanted = [(place, end) for place, (_, end) in group.places() if place[0] != self._given.packer.tables_topic]
        if not all(self._end_of(place) >= end for place, end in wanted):
            return False
        parts = [part for place, end in sorted(wanted) for part in self._taken(place, end)]
        tables = group.ranges.get(self._given.packer.tables_topic or "", {})
        parts += [self._tables_until(end) for _, end in tables.values()]
        self._logged.popleft()
        began = time.monotonic()
        records = table(parts)
        self._reply(self._evaluator.evaluate(records, self._running, group.run_id, group.emitted_at))
        self._times.add(records.num_rows, {"evaluate": time.monotonic() - began})
        if not self._logged:
            self._since = time.monotonic() if any(self._waiting.values()) else None
        return True

    def _evaluate_next(self) -> None:
        """Log and evaluate a group of what waits: all control records, and as many events as it may have."""
        began, since = time.monotonic(), self._since
        parts, size = list[Records](), 0
        for place in sorted(self._waiting, key=lambda place: (place[0] not in self._control, place)):
            waiting = self._waiting[place]
            while waiting and (place[0] in self._control or size < _LARGEST_GROUP):
                parts.append(waiting.popleft())
                size += parts[-1].size
        self._size -= size
        self._since = time.monotonic() if any(self._waiting.values()) else None
        if self._tables is not None and (end := self._tables.end()) > self._tables_known:
            parts.append(self._tables_until(end))
        ranges: dict[str, dict[int, tuple[int, int]]] = {}
        for part in parts:
            of = ranges.setdefault(part.topic, {})
            first, _ = of.get(part.partition, (int(part.offsets[0]), 0))
            of[part.partition] = first, int(part.offsets[-1]) + 1
        parts.sort(key=lambda part: (part.topic, part.partition))
        group = Group(self._run_id, time.time_ns() // 1000, ranges)
        self._opened.append(group)
        synced = self._syncing.submit(self._opened.sync)  # beside the evaluation
        records = table(parts)
        results = self._evaluator.evaluate(records, self._running, group.run_id, group.emitted_at)
        evaluated = time.monotonic()
        synced.result()
        logged = time.monotonic()
        self._reply(results)
        took = {"evaluate": evaluated - began, "log": logged - evaluated, "reply": time.monotonic() - logged}
        self._times.add(records.num_rows, {"wait": began - (since or began), **took})

    def _tables_until(self, end: int) -> Records:
        """The last record of changes of tables before a position, in the place of all of them."""
        self._tables_known = end
        return as_records(self._given.packer.tables_topic or "", [Record(end - 1, 0, b"")])

    @property
    def _running(self) -> int:
        assert self._version is not None  # noqa: S101  a batch runs
        return self._version

    def _end_of(self, place: tuple[str, int]) -> int:
        """The offset after the last waiting record of a partition."""
        waiting = self._waiting.get(place)
        return int(waiting[-1].offsets[-1]) + 1 if waiting else 0

    def _taken(self, place: tuple[str, int], end: int) -> list[Records]:
        """The waiting records of a partition before this offset, which wait no more."""
        waiting, parts = self._waiting[place], list[Records]()
        while waiting and waiting[0].offsets[0] < end:
            first = waiting.popleft()
            before, rest = first.split(end)
            self._size -= first.size
            if before is not None:
                parts.append(before)
            if rest is not None:
                waiting.appendleft(rest)
                self._size += rest.size
        return parts

    def _reply(self, results: list[pa.Table]) -> None:
        found = list(replies(results))
        if not found:
            return
        if self._is_running:  # any task may publish them
            self._tasks[0].socket.sendall(encoded(found))
        else:
            assert self._between is not None  # noqa: S101  see _is_blocked
            self._between.publish(found)

    def _end_batch(self) -> None:
        """Store the state of the batch, and let its tasks end, once each of them has ended its part.

        Raises:
            RuntimeError: the batch has ended before it had all logged groups, or the answers that must be known.
        """
        expected = {task.hello.tasks if task.hello else 0 for task in self._tasks}
        if expected != {len(self._tasks)} or not all(task.has_ended for task in self._tasks):
            return
        if any(self._waiting.values()) or self._logged:
            if self._is_over or self._logged or self._answered < self._needed:
                raise RuntimeError("the batch has ended before it had what must be evaluated first")
            return
        if self._between is not None:
            self._tasks[0].socket.sendall(encoded(self._between.unpublished()))
        self._evaluator.store()
        self._opened.close()
        version, tasks = self._running + 1, self._tasks
        self._tasks, self._version, self._log, self._is_running = [], None, None, False
        self._is_over = self._given.only_one
        reads_on = self._between is not None and not (self._is_over or self._rests)
        ahead = {place: end for place, end in self._ahead.items() if end > self._of_tasks.get(place, 0)}
        self._of_tasks = {}
        if reads_on or ahead:
            self._open_log(version, ahead)
        for task in tasks:
            task.socket.sendall(STORED)
            task.socket.close()
        if self._between is not None and reads_on:
            self._between.begin(self._ends)


def main() -> None:
    """Run the engine of the plan that the driver sends over the connection with the number of the first argument."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    driver = Connection(int(sys.argv[1]))
    given: EnginePlan = driver.recv()
    try:
        load_kernels()
        if given.warm_up is not None:
            given.warm_up.run()
        gc.collect()
        gc.freeze()
        sys.setswitchinterval(_SWITCH_SECONDS)
        Engine(given, driver).run()
    finally:  # a driver that was killed cannot
        shutil.rmtree(Path(given.path).parent, ignore_errors=True)


if __name__ == "__main__":
    main()
