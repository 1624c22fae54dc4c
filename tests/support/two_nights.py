"""A small lake with a bit of everything: two days of payments that a job has read and the nights have judged."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import groupby
from pathlib import Path
from typing import Any

from nightjar.contracts.json_text import ascii_json
from nightjar.contracts.rule_status import answer_record
from nightjar.lake.scanning import scan
from nightjar.lake.tables import LATE_EVENTS
from nightjar.rules.publishing import Answer, Status
from nightjar.rules.rulebook import Record
from nightjar.rules.timestamps import iso_text, microseconds
from nightjar.rules.versions import Superseded
from tests.support.lake_nights import LakeNights, Sent
from tests.support.night_runs import NightRun
from tests.support.payments import DAY, HOUR, MINUTE, STREAM
from tests.support.random_runs import Batch, Published, Restart, Run
from tests.support.reference import Event

DAYS = (date(2026, 1, 5), date(2026, 1, 6))
MIDNIGHT = microseconds(datetime(2026, 1, 5, tzinfo=UTC))
_SECOND = 1_000_000
_BATCH = 5 * _SECOND
_COUNTED = {"n": {"count": "*", "over": "1h"}, "spent": {"sum": "amount", "over": "1h"}}
_OF_A_CUSTOMER = {"stream": "transactions", "group_by": ["customer_id"], "measures": _COUNTED}
RULES: list[dict[str, Any]] = [
    {"id": "burst", **_OF_A_CUSTOMER, "when": "n >= 3", "severity": "high", "mute": "30m"},
    {"id": "second", **_OF_A_CUSTOMER, "when": "n = 2", "severity": "low"},  # a late event may take its alert away
    {"id": "dear", **_OF_A_CUSTOMER, "when": "amount > 60"},  # now and then beyond the cap of two an hour
    {"id": "cheap", **_OF_A_CUSTOMER, "when": "amount < 20", "state": "shadow"},
]
DEARER = RULES[2] | {"when": "amount > 80"}  # published at noon of the second day, for the two hours before it, too
UNUSABLE = (b"[]", b"no JSON", b'{"transaction_id": "x"}', b"{")


def two_nights(folder: Path) -> LakeNights:
    """The lake in the folder, once both nights have been published and everything is archived."""
    run = NightRun(Run(STREAM, []), folder)
    run.take(Restart(0, STREAM.allowed_lateness))
    nights, messages = run.nights, [_message(number, MIDNIGHT, rule) for number, rule in enumerate(RULES)]
    for at, events in _batches():
        if at > MIDNIGHT + DAY + 12 * HOUR and len(run.host.answers) == len(RULES):
            messages = [_message(len(RULES), at, DEARER, effective=at - 2 * HOUR)]
        nights.send(events)
        run.take(Batch(at, messages, events, at, again=False))
        messages = []
    first = max(event["offset"] for event in events) + 1
    nights.send_unusable((Sent(0, first + n, at, raw) for n, raw in enumerate(UNUSABLE)), at + _SECOND)
    earlier, later = run.host.book.of_rule("dear")
    ended = Status(Answer.SUPERSEDED, "dear", 1, earlier.effective, superseded=Superseded(2, later.effective))
    nights.answer([Record(len(run.host.answers), at, ascii_json(answer_record(ended)[1]))])
    for number, day in enumerate(DAYS, 2):
        nights.archive(MIDNIGHT + number * DAY)
        nights.night(day, now=MIDNIGHT + number * DAY + HOUR)
    _repeat(nights)
    nights.archive(MIDNIGHT + 4 * DAY)
    return nights


def _repeat(nights: LakeNights) -> None:
    """What readers of the topics have to bear: records that came twice, of one revision the stream's and the
    backfill's, and records that are none."""
    latest = {alert["alert_id"]: alert for alert in sorted(nights.alerts, key=lambda alert: alert["revision"])}
    of_stream = [alert for alert in latest.values() if alert["source"] == "stream" and "overflow" not in alert]
    counted = [alert for alert in of_stream if alert["rule_state"] == "active" and not alert["muted"]]
    withdrawn = counted[0] | {"source": "backfill", "kind": "retraction", "cause": "late_event"}
    row = scan(nights.root, LATE_EVENTS).head(1).collect().row(0, named=True)
    late = {
        **{name: row[name] for name in ("stream", "event_id")},
        **{name: iso_text(microseconds(row[name])) for name in ("event_time", "arrival_time")},
        "partition": row["record_partition"],
        "offset": row["record_offset"],
        "event": json.loads(row["event"]),
    }
    at = MIDNIGHT + 3 * DAY + 2 * HOUR
    nights.read(at, [], [withdrawn, counted[1], {"text": "no alert"}], [late, {"text": "no event"}])


def _message(offset: int, arrival: int, rule: dict[str, Any], effective: int | None = None) -> Published:
    stated = {} if effective is None else {"effective": iso_text(effective)}
    return Published(offset, arrival, rule | stated | {"author": "ann", "reason": "as agreed"}, effective)


def _batches() -> Iterator[tuple[int, list[Event]]]:
    """Events in the order of arrival, each with the time (µs) at which the job has read its batch."""
    for number, arrived in groupby(_events(), lambda event: event["arrival"] // _BATCH):
        yield (number + 1) * _BATCH, list(arrived)


def _events() -> list[Event]:
    """A hundred events a day, some of them late, out of order, or sent twice."""
    rng, found = random.Random(5), []  # noqa: S311  the same events each time
    for number in range(200):
        happened = MIDNIGHT + number // 100 * DAY + rng.randrange(9 * HOUR, 15 * HOUR)
        # most come within seconds; others after minutes, which is in time, or hours, which is not
        delay = rng.choice([rng.randrange(3 * _SECOND)] * 7 + [8 * MINUTE] * 2 + [rng.randrange(HOUR, 20 * HOUR)])
        values = {"customer_id": rng.choice("abcdef"), "terminal_id": "m", "amount": Decimal(rng.randrange(1, 100))}
        event = {"transaction_id": f"t{number}", "event_time": happened, **values}
        found += [event | {"arrival": happened + delay + n * MINUTE} for n in range(2 if number % 25 == 0 else 1)]
    found.sort(key=lambda event: event["arrival"])
    # not every producer says when it has sent an event
    headers = [{"sent_at": event["arrival"] - 20_000} if n % 2 else {} for n, event in enumerate(found)]
    places = [{"partition": 0, "offset": offset} for offset in range(len(found))]
    return [event | place | header for event, place, header in zip(found, places, headers, strict=True)]
