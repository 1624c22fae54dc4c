"""The notifier: reads alerts into the outbox, and has a courier per target send what is due."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event
from time import monotonic
from typing import Self
from uuid import uuid4

import structlog

from nightjar.configuration.settings import Settings
from nightjar.contracts.alerts import ALERT
from nightjar.contracts.snoozes import Snoozes
from nightjar.kafka.clients import KafkaError
from nightjar.kafka.readers import Reader
from nightjar.kafka.rule_topics import rule_book
from nightjar.notifications.delivery import Courier, holds, now_us
from nightjar.notifications.messages import Message
from nightjar.notifications.metrics import NotifierMetrics
from nightjar.notifications.outbox import Outbox, Routed
from nightjar.notifications.routes import Routes
from nightjar.notifications.senders import check_secrets, send
from nightjar.operations.alert_forwarding import ForwardedAlert, TargetLostError, forward
from nightjar.operations.alert_masks import AlertMasks
from nightjar.operations.locks import sole_notifier
from nightjar.operations.snoozing import SnoozeLog
from nightjar.rules.durations import MICROSECONDS
from nightjar.rules.errors import SettingsError
from nightjar.rules.names import did_you_mean
from nightjar.rules.streams import Stream

_log = structlog.get_logger(__name__)

# Until Kafka is tried again, seconds.
_AGAIN = 5.0
_SNOOZES_AGAIN = 30.0
_PRUNE_EVERY = MICROSECONDS["h"]


class Intake:
    """What the alerts topic is forwarded to (operations.alert_forwarding): the outbox.

    Values of sensitive fields are masked before anything is written. snoozes: asked for each poll's alerts.
    """

    def __init__(
        self,
        outbox: Outbox,
        settings: Settings,
        streams: Mapping[str, Stream],
        routes: Routes,
        *,
        snoozes: Callable[[], Snoozes],
        metrics: NotifierMetrics,
    ) -> None:
        self._outbox, self._settings, self._routes = outbox, settings, routes
        self._snoozes, self._metrics = snoozes, metrics
        self._masks = AlertMasks(settings, streams)
        self._needs_tags = any(route.tags for route in routes.routes)
        self._pruned_at = 0

    def start(self) -> Mapping[int, int]:
        """The offsets in the outbox."""
        return self._outbox.offsets(self._settings.alerts_topic)

    def write(self, alerts: Sequence[ForwardedAlert], offsets: Mapping[int, int]) -> None:
        """Route the alerts, and write what is for a target with the offsets."""
        snoozes = self._snoozes() if alerts else Snoozes()
        routed, now = [each for alert in alerts for each in self._routed(alert, snoozes)], now_us()
        try:
            left_out = self._outbox.take(self._settings.alerts_topic, routed, offsets, now)
            if now >= self._pruned_at + _PRUNE_EVERY:
                # Older ones have left the topic, so nothing about them is to be expected.
                self._outbox.prune(now - self._settings.alert_retention)
                self._pruned_at = now
        except sqlite3.OperationalError as failure:
            raise TargetLostError(str(failure), where="the outbox", remedy="See whether the disk is full") from None
        for target, count in left_out.items():
            self._metrics.snoozed(target, count)
            _log.info("alerts_snoozed", target=target, alerts=count)

    def _routed(self, alert: ForwardedAlert, snoozes: Snoozes) -> list[Routed]:
        record = ALERT.record(alert.row)
        tags: frozenset[str] = frozenset()
        if self._needs_tags and (rule := self._masks.rule(record["rule_id"], record["rule_version"])) is not None:
            tags = frozenset(rule.tags)
        found = self._routes.of(record, tags)
        if not found:
            return []
        shown, snoozed = self._masks.masked(record), snoozes.until(alert.row) is not None
        quiet = {target: self._routes.targets[target].quiet for target in found}
        return [
            Routed(
                target,
                shown,
                route.grouping(shown),
                route.wait,
                (hours := quiet[target]) is None or record["severity"] in hours.excepted,
                snoozed and not route.snoozed,
            )
            for target, route in found.items()
        ]


class SnoozeWatch:
    """The snoozes that the topic has whenever it is asked; a context manager.

    Where it cannot be read those known before count, and that is logged: a person hears of too much before too little.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings, self._log, self._known = settings, SnoozeLog(settings), Snoozes()
        self._reader: Reader | None = None
        self._not_before = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._reader is not None:
            self._reader.__exit__()
            self._reader = None

    def known(self) -> Snoozes:
        """All of them."""
        if monotonic() < self._not_before:
            return self._known
        try:
            if self._reader is None:
                self._reader = Reader(self._settings, self._settings.snoozes_topic)
            self._known = self._log.read(self._reader)
        except KafkaError as failure:
            self.__exit__()
            self._not_before = monotonic() + _SNOOZES_AGAIN
            _log.warning("snoozes_cannot_be_read", reason=str(failure), again_in_seconds=_SNOOZES_AGAIN)
        return self._known


class Notifier:
    """Reads and sends until it is asked to stop. metrics: of what it does.

    Raises:
        SettingsError: a secret's file cannot be used.
    """

    def __init__(self, settings: Settings, streams: Mapping[str, Stream], routes: Routes) -> None:
        for target in routes.targets.values():
            check_secrets(target)
        self._settings, self._streams, self._routes = settings, streams, routes
        quiet = {name: partial(holds, target) for name, target in routes.targets.items()}
        self.metrics = NotifierMetrics(settings.outbox_file, quiet, now_us)
        self._reads = False

    def not_ready(self) -> str | None:
        """Why no alert would be sent; None if it would."""
        return None if self._reads else "the alerts cannot be read: see the log"

    def run(self, stop: Event, *, from_beginning: bool = False) -> None:
        """Read and send until `stop` is set. While Kafka cannot be read, it is tried again, and what waits is sent.

        from_beginning: where a new outbox begins: at the topic's beginning, else at its end.

        Raises:
            AlreadyRunningError: another notifier has the outbox.
            SettingsError: the outbox cannot be used.
            ForwardError: nothing more can be read.
        """
        file, targets = self._settings.outbox_file, self._routes.targets
        with sole_notifier(file), Outbox(file) as outbox, ThreadPoolExecutor(len(targets)) as pool:
            for name, count in outbox.left_to_others(targets).items():
                _log.warning("messages_without_target", target=name, messages=count)
            sending = [pool.submit(Courier(name, each, self.metrics).run, file, stop) for name, each in targets.items()]
            for each in sending:
                each.add_done_callback(lambda _: stop.set())  # one that has ended by itself must not go unnoticed
            try:
                with SnoozeWatch(self._settings) as snoozes:
                    self._read(outbox, stop, snoozes, from_beginning=from_beginning)
            finally:
                stop.set()
            for each in sending:
                each.result()

    def _read(self, outbox: Outbox, stop: Event, snoozes: SnoozeWatch, *, from_beginning: bool) -> None:
        given = (outbox, self._settings, self._streams, self._routes)
        intake = Intake(*given, snoozes=snoozes.known, metrics=self.metrics)
        topic, looked = self._settings.alerts_topic, False
        while not stop.is_set():
            try:
                if not from_beginning and not outbox.offsets(topic):
                    with Reader(self._settings, topic) as reader:
                        ends = {place.partition: end for place, end in reader.ends().items()}
                    outbox.take(topic, [], ends, now_us())
                self._reads = True
                if not looked:
                    self._warn_of_idle_routes()
                    looked = True
                forward(self._settings, intake, stop)
            except KafkaError as failure:
                self._reads = False
                _log.warning("alerts_cannot_be_read", reason=str(failure), again_in_seconds=_AGAIN)
                stop.wait(_AGAIN)

    def _warn_of_idle_routes(self) -> None:
        """Say which routes take alerts of no rule that there is: of a rule's id or tag that was mistyped."""
        newest = {version.rule.id: version.rule for version in rule_book(self._settings, self._streams).every}
        for number, route in enumerate(self._routes.routes, 1):
            if newest and not any(map(route.takes, newest.values())):
                _log.warning("route_matches_no_rule", route=number, to=list(route.to), rules=list(route.rules))


def send_test(routes: Routes, name: str) -> None:
    """Send a message to a target that says it is a test.

    Raises:
        SettingsError: there is no such target, or a secret's file cannot be used.
        DeliveryError: it was not accepted.
    """
    if name not in routes.targets:
        remedy = did_you_mean(name, routes.targets, "Targets are")
        raise SettingsError(f"{name!r} is not a target", where="--test", remedy=remedy)
    send(routes.targets[name], Message(uuid4().hex, now_us(), [], {}, is_test=True))
