"""What the driver does for the rules beside the query: answers, history, ends, and caps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

from nightjar.contracts.clock import Clock
from nightjar.rules.rulebook import ShuffleKey
from nightjar.streaming.config import JobConfig
from nightjar.streaming.driver.answering import Answering
from nightjar.streaming.driver.engine_link import EngineLink
from nightjar.streaming.driver.outbox import Outbox
from nightjar.streaming.driver.overflow import CapWatch
from nightjar.streaming.priming.priming import Primer
from nightjar.streaming.state.checkpoint import Checkpoint
from nightjar.streaming.state.metadata import Metadata, Offsets


class RuleChanges:
    """Follows the rules, and determines the shuffle keys that the query needs for them.

    cap: watches the alerts of an hour; None where there may be any number.
    """

    def __init__(
        self,
        config: JobConfig,
        checkpoint: Checkpoint,
        answering: Answering,
        priming: Primer,
        *,
        outbox: Outbox,
        cap: CapWatch | None,
    ) -> None:
        self.answering, self.priming = answering, priming
        self._topics = config.topics
        self._checkpoint, self._outbox, self._cap = checkpoint, outbox, cap
        self._clocked: Mapping[str, int] = {}
        self._unused: frozenset[ShuffleKey] = frozenset()
        self._is_uncertain = False

    def settle(self, begins: Callable[[], Offsets]) -> Metadata:
        """Answer all messages, and store the shuffle keys of all rules. begins: as in `Checkpoint.settle`."""
        self.answering.catch_up()
        book = self.answering.book
        self._unused = book.unused(self._clocked)
        unused = frozenset[ShuffleKey]() if self._must_keep_keys else self._unused
        settled = self._checkpoint.settle(book.shuffle_keys, begins, unused=unused, wanted=book.wanted())
        self.answering.run_with(settled.in_use)
        return settled

    def attach(self, engine: EngineLink | None) -> None:
        """Answers are announced to this engine process from now on, so that it knows each before events that arrive
        after it; None: to none."""
        self.answering.engine, self._is_uncertain = engine, False

    @contextlib.contextmanager
    def _announcing(self) -> Iterator[None]:
        """Answer inside the block. The engine goes on when every answer that may have been published is known: after a
        failure not before the next block."""
        engine = self.answering.engine
        if engine is not None and self._is_uncertain:
            self.answering.read_on()
        self._is_uncertain = True
        yield
        self._is_uncertain = False
        if engine is not None:
            engine.release()

    @property
    def _must_keep_keys(self) -> bool:
        """Whether a real-time batch is logged, which is evaluated again with the shuffle keys that it had."""
        return self._checkpoint.unfinished == "real-time"

    @property
    def need_other_keys(self) -> bool:
        """Whether a version waits for a shuffle key, or one is out of use."""
        return self.answering.lacks_shuffle_key or (self._has_unused_key and not self._must_keep_keys)

    @property
    def _has_unused_key(self) -> bool:
        metadata = self._checkpoint.metadata
        return metadata is not None and not self._unused.isdisjoint(metadata.in_use)

    def answered(self, offsets: Offsets) -> int:
        """The offset of `rule-status` among these."""
        return offsets.get(self._topics.rule_status, {}).get(0, 0)

    def follow(self) -> None:
        """Answer what is new, go on with priming, and publish which caps have been reached.

        Raises:
            KafkaError: no broker answers.
        """
        with self._announcing():
            self.answering.poll()
            self.priming.step()
            if self.answering.owes and not self.answering.lacks_shuffle_key:
                stored = self._checkpoint.committed_offsets()
                read = self._checkpoint.positions(stored)
                self.answering.activate(self.answered(read), self.answered(stored))
        if self._cap is not None and (reached := self._cap.reached()):
            self._outbox.send(self._topics.clock, Clock(self._checkpoint.run_id, {}, reached).encoded())

    def conclude(self, clocks: Mapping[str, int], consumed: Offsets) -> None:
        """See which versions and shuffle keys have ended by these clocks (µs, by stream), which were published."""
        self.priming.note_clocks(clocks)
        self._clocked, self._unused = clocks, self.answering.book.unused(clocks)
        if self._has_unused_key and self.answering.engine is not None:
            self.answering.engine.rest()  # it is dropped where no group is logged: between two batches
        with self._announcing():
            self.answering.conclude(clocks, self.answered(consumed))
