"""Sends what is due to one target, one message after the other, for ever.

A message that fails is tried again after a second, then two, up to five minutes, and those behind it wait: so a target
is told of an alert before its retraction. What it refuses is given up after some attempts, anything after the time that
the target's `give_up_after` says, and is kept in the outbox for a person to see.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import structlog

from nightjar.notifications.messages import DeliveryError, RefusedError
from nightjar.notifications.metrics import NotifierMetrics
from nightjar.notifications.outbox import Outbox, Sealed
from nightjar.notifications.routes import Target, Webhook
from nightjar.notifications.senders import send
from nightjar.rules.errors import NightjarError

_log = structlog.get_logger(__name__)

# Between two looks at the outbox, seconds.
_LOOK = 0.2
# Until a message is tried again, seconds: doubled each time, up to the second.
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 300.0
# Attempts after which a message is given up that the target refuses: within about a minute.
_MOST_REFUSALS = 6
# Alerts of a message: what programs take, and what people read.
_OF_PROGRAMS, _OF_PEOPLE = 100, 20


def now_us() -> int:
    """The time, µs."""
    return time.time_ns() // 1000


def holds(target: Target, now: int) -> bool:
    """Whether quiet hours of the target are on."""
    return target.quiet is not None and target.quiet.hours.hold(now)


class Courier:
    """Sends what is due to a target. name: of the target."""

    def __init__(self, name: str, target: Target, metrics: NotifierMetrics) -> None:
        self._name, self._target, self._metrics = name, target, metrics

    def run(self, file: Path, stop: Event) -> None:
        """Send until `stop` is set; what is being sent then is finished."""
        waits = _waits()
        with Outbox(file) as outbox:
            while not stop.is_set():
                try:
                    again_after = self.step(outbox)
                except sqlite3.OperationalError as failure:  # a full disk: what was sent is sent again, with its key
                    _log.warning("outbox_lost", target=self._name, reason=str(failure))
                    again_after = 0.0
                if again_after is None:
                    waits = _waits()
                    continue
                stop.wait(max(next(waits), again_after) if again_after >= 0 else _LOOK)

    def step(self, outbox: Outbox, now: Callable[[], int] = now_us) -> float | None:
        """Send the next message: None if it was accepted, -1 if none is due, else the seconds to wait at least."""
        is_program = isinstance(self._target, Webhook)
        sealed = outbox.next(
            self._name,
            now(),
            quiet=holds(self._target, now()),
            listed=_OF_PROGRAMS if is_program else _OF_PEOPLE,
            splits=is_program,
        )
        if sealed is None:
            return -1.0
        try:
            send(self._target, sealed.message)
        except Exception as failure:  # noqa: BLE001  whatever one message does to its sender, others have to leave
            return self._failed(outbox, sealed, failure, now())
        outbox.delivered(sealed)
        self._metrics.delivered(self._name, sealed.message, now())
        return None

    def _failed(self, outbox: Outbox, sealed: Sealed, failure: Exception, now: int) -> float:
        is_known = isinstance(failure, NightjarError)
        reason = str(failure) if is_known else type(failure).__name__
        # An error of another kind is a defect, and will come back.
        is_refused = isinstance(failure, RefusedError) or not is_known
        is_over = (is_refused and sealed.attempts + 1 >= _MOST_REFUSALS) or (
            now - sealed.tried_since >= self._target.give_up_after
        )
        outbox.failed(sealed, reason, given_up=now if is_over else None)
        self._metrics.failed(self._name, given_up=is_over)
        about = {"target": self._name, "key": sealed.message.key, "attempt": sealed.attempts + 1, "reason": reason}
        if is_over:
            _log.error("notification_given_up", **about, remedy="nightjar alerts undelivered --retry")
        else:
            _log.warning("notification_failed", **about, exc_info=None if is_known else failure)
        return min(failure.again_after, _LONGEST_WAIT) if isinstance(failure, DeliveryError) else 0.0


def _waits() -> Iterator[float]:
    wait = _FIRST_WAIT
    while True:
        yield wait
        wait = min(2 * wait, _LONGEST_WAIT)
