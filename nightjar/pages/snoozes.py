"""Snoozes groups from the page of an alert, of an entity and of a rule, and shows what is snoozed there.

What it does not do: decide what is snoozed. That is `contracts.snoozes.Snoozes`, as for the notifier.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse

from nightjar.backfill.publish.snoozed import Snoozed
from nightjar.configuration.settings import Settings
from nightjar.contracts.record_type import Row
from nightjar.contracts.run_manifest import RunManifest
from nightjar.contracts.snoozes import SET, Snooze, Snoozes, end_record
from nightjar.lake.snoozes import archived_snoozes
from nightjar.operations.labelling import now
from nightjar.operations.snoozing import (
    SnoozeLog,
    ends_of_alert,
    read_snoozes,
    send_snoozes,
    shown_group,
    snooze_of_alert,
)
from nightjar.pages.acting import Acting, acted
from nightjar.pages.lake_reader import LakeReader
from nightjar.pages.readings import Reading
from nightjar.pages.rendering import EventTime, see_other, to_alert
from nightjar.pages.rows import group_text
from nightjar.rules.durations import parse_duration
from nightjar.rules.errors import SettingsError
from nightjar.rules.masking import MASK
from nightjar.rules.rulebook import RuleBook
from nightjar.rules.timestamps import after, from_microseconds, microseconds
from nightjar.storage.paths import AnyPath

# What the forms offer: how long, and from when.
LENGTHS = (
    ("1h", "1 hour"),
    ("8h", "8 hours"),
    ("1d", "1 day"),
    ("7d", "7 days"),
    ("30d", "30 days"),
    ("90d", "90 days"),
)
_FROM_NOW, _FROM_ALERT = "now", "alert"
BEGINS = ((_FROM_NOW, "now"), (_FROM_ALERT, "the alert's event"))


class SnoozeReader:
    """The snoozes of an installation, for all readers of a process at once.

    read: those on the topic; archived: those in the lake, for when Kafka cannot be read; send: puts records there.
    """

    def __init__(
        self,
        read: Callable[[], Snoozes],
        archived: Callable[[], Snoozes],
        send: Callable[[Sequence[Row]], object],
    ) -> None:
        self._reading, self._archived, self._send = Reading(read), archived, send

    @classmethod
    def on_kafka(cls, settings: Settings, root: AnyPath) -> SnoozeReader:
        """Those on the topic of an installation, whose lake is at `root`."""
        log = SnoozeLog(settings)
        return cls(
            lambda: read_snoozes(settings, log),
            lambda: archived_snoozes(root),
            lambda records: send_snoozes(settings, records),
        )

    def known(self) -> Snoozes:
        """All of them, at most some seconds old."""
        return self._reading.now_or(self._archived)[0]

    def current(self) -> Snoozes:
        """All of them as they are now.

        Raises:
            KafkaError: the topic cannot be read.
        """
        return self._reading.now(fresh=True)

    def send(self, records: Sequence[Row]) -> None:
        """Send records.

        Raises:
            KafkaError: Kafka does not take them.
        """
        self._send(records)
        self._reading.drop()


@dataclass(frozen=True)
class Shown:
    """A snooze as a page shows it. group: without sensitive values; state: "on", "later", "ended" or "over"."""

    snooze: Snooze
    state: str
    group: str = ""

    @property
    def is_open(self) -> bool:
        """Whether it can be ended."""
        return self.state in ("on", "later")

    @property
    def times(self) -> tuple[Any, Any]:
        """Since and until, as datetimes."""
        return from_microseconds(self.snooze.since), from_microseconds(self.snooze.until)


def shown(found: Sequence[Snooze], group: Callable[[Snooze], str] = lambda _: "") -> list[Shown]:
    """The snoozes as a page shows them: those that are not over first, then the latest."""
    at = now()
    rows = [Shown(each, _state(each, at), group(each)) for each in found]
    return sorted(rows, key=lambda row: (row.is_open, row.snooze.set_at), reverse=True)


def group_of(snooze: Snooze, book: RuleBook, lake: LakeReader) -> str:
    """The values of a group, without sensitive ones."""
    group = shown_group(snooze, book, lake.streams)
    return MASK if group == MASK else group_text(group)


def of_night(lake: LakeReader, run: RunManifest) -> list[tuple[Snoozed, Shown | None]]:
    """The snoozes of which a run has counted alerts, as they are now; None for one that was erased."""
    rows, at = lake.snoozed(run), now()
    book = lake.book() if rows else RuleBook({})
    return [
        (of, None if snooze is None else Shown(snooze, _state(snooze, at), group_of(snooze, book, lake)))
        for of, snooze in rows
    ]


def on_now(known: Snoozes) -> Counter[str]:
    """By rule, how many groups' snoozes are on."""
    at = now()
    return Counter(each.rule_id for each in known.every if each.covers(at))


def _state(snooze: Snooze, at: int) -> str:
    if snooze.until <= at:
        return "over" if snooze.kind == SET else "ended"
    return "on" if snooze.since <= at else "later"


def add_snoozes(
    app: FastAPI,
    reader: Callable[[], LakeReader],
    snoozes: Callable[[], SnoozeReader],
    *,
    guard: Any,
    actor: Any,
) -> None:
    """Add the addresses that take the forms."""

    def do(alert_id: str, who: str, form: Mapping[str, str]) -> int:
        known, alert = snoozes(), reader().labelled(alert_id)
        reason, at, happened = form.get("reason", "").strip(), now(), microseconds(alert.event_time)
        if form.get("do") == "end":
            known.send(ends_of_alert(known.current(), alert, author=who, reason=reason, at=at))
            return happened
        since = happened if form.get("since") == _FROM_ALERT else at
        until = after(at, parse_duration(form.get("length", "")))
        known.send([snooze_of_alert(alert, since=since, until=until, author=who, reason=reason, at=at)])
        return happened

    def end(rule_id: str, snooze_id: str, who: str, reason: str) -> None:
        known = snoozes()
        of_rule = known.current().of_rule(rule_id)
        found = next((each for each in of_rule if each.snooze_id == snooze_id and each.until > now()), None)
        if found is None:
            raise SettingsError("is over already", where="the snooze", remedy="Open the page of the rule again")
        known.send([end_record(found, author=who, reason=reason, now=now())])

    @app.post("/alerts/{alert_id}/snooze", dependencies=[guard])
    async def of_alert(request: Request, alert_id: str, acting: Acting = actor) -> RedirectResponse:
        who, form = await acted(request, acting)
        return back(alert_id, await run_in_threadpool(do, alert_id, who, form))

    @app.get("/alerts/{alert_id}/snooze", dependencies=[guard])
    def back(alert_id: str, at: EventTime = None) -> RedirectResponse:
        """Where a login leads whose session had ended before the form was sent; likewise the others."""
        return to_alert(alert_id, at, "snoozed")

    @app.post("/entity/snooze", dependencies=[guard])
    async def of_entity(request: Request, acting: Acting = actor) -> RedirectResponse:
        who, form = await acted(request, acting)
        await run_in_threadpool(do, form.get("alert", ""), who, form)
        return to_entity(form.get("field", ""), form.get("value", ""), form.get("first", ""), form.get("last", ""))

    @app.get("/entity/snooze", dependencies=[guard])
    def to_entity(field: str = "", value: str = "", first: str = "", last: str = "") -> RedirectResponse:
        if not field:  # after a login
            return see_other("../alerts")
        asked = {"field": field, "value": value, "first": first, "last": last}
        return see_other(f"../entity?{urlencode(asked)}#snoozed")

    @app.post("/rules/{rule_id}/unsnooze", dependencies=[guard])
    async def of_rule(request: Request, rule_id: str, acting: Acting = actor) -> RedirectResponse:
        who, form = await acted(request, acting)
        await run_in_threadpool(end, rule_id, form.get("snooze", ""), who, form.get("reason", "").strip())
        return to_rule(rule_id)

    @app.get("/rules/{rule_id}/unsnooze", dependencies=[guard])
    def to_rule(rule_id: str) -> RedirectResponse:
        return see_other(f"../{quote(rule_id, safe='')}#snoozed")
