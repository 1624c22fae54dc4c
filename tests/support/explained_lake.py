"""A lake of few rows about one alert, without Kafka, for what explains or shows alerts."""

import json
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from nightjar.cli.app import app
from nightjar.contracts.run_manifest import RunManifest, RunState
from nightjar.lake.json_topics import JsonReader
from nightjar.lake.tables import ALERTS, CORRECTIONS, RECONCILIATION, RULE_STATUS, RUNS, VIOLATIONS
from nightjar.rules.alert_ids import alert_id
from nightjar.rules.rulebook import Record
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import microseconds
from tests.support.answers import answered
from tests.support.payments import NOON, STREAM, add, days, fill, payment

GROUP = '{"customer_id":"ann"}'
LIMIT: dict[str, Any] = {
    "id": "limit",
    "stream": "transactions",
    "group_by": ["customer_id"],
    "measures": {"n": {"count": "*", "over": "1h"}},
    "when": "n >= 2",
}
DAY, PUBLISHED = NOON.date(), NOON - days(30)
MINUTES = timedelta(minutes=1)
MIDNIGHT = datetime(NOON.year, NOON.month, NOON.day, tzinfo=NOON.tzinfo)


def named(version: int = 1, event: str = "t2", at: datetime = NOON, group: str = GROUP) -> str:
    """The id of an alert of the rule."""
    return alert_id("limit", version, event, microseconds(at), group)


def _record(changed: dict[str, Any]) -> dict[str, Any]:
    """A record about the alert at t2, with other values for some members."""
    row: dict[str, Any] = {
        "alert_id": named(changed.get("rule_version", 1)),
        "revision": 1,
        "kind": "alert",
        "rule_id": "limit",
        "rule_version": 1,
        "rule_state": "active",
        "stream": "transactions",
        "group": GROUP,
        "event_id": "t2",
        "event_time": NOON,
        "measures": '{"n":2}',
        "severity": "medium",
        "text": "",
        "muted": False,
        "source": "stream",
        "emitted_at": NOON,
        "arrival_date": NOON.date(),
    }
    return row | changed


@dataclass
class Ground:
    """A lake, and the command."""

    root: Path
    answers: list[Record] = field(default_factory=list)

    def publish(self, *messages: dict[str, Any], at: datetime = PUBLISHED, stream: Stream = STREAM) -> None:
        """Rule messages about this stream that were answered then."""
        before = len(self.answers)
        streams = {stream.name: stream}
        self.answers += answered(streams, *messages, at=microseconds(at), first=before, after=tuple(self.answers))
        read = JsonReader(RULE_STATUS)
        place = {"partition": 0, "arrival_time": at}
        fill(self.root, RULE_STATUS, *(read.row(a.value) | place | {"offset": a.offset} for a in self.answers[before:]))

    def alert(self, **changed: Any) -> None:
        """A record about the alert at t2."""
        fill(self.root, ALERTS, _record(changed))

    def night(self, day: date = DAY, **outcome: Any) -> None:
        """A finished night of the day, with what it found about the alert at t2, if anything."""
        cut = microseconds(datetime(day.year, day.month, day.day, tzinfo=NOON.tzinfo) + days(1) + 10 * MINUTES)
        fill(self.root, RUNS, RunManifest("run", day, RunState.FINISHED, cut, cut, cut=cut).row())
        if outcome:
            row = {"alert_id": named(), "day": day, "rule_id": "limit", "rule_version": 1, "stream": "transactions"}
            fill(self.root, RECONCILIATION, row | {"group": GROUP, "event_id": "t2", "event_time": NOON} | outcome)

    def corrected(self, kind: str, cause: str, day: date = DAY, **changed: Any) -> None:
        """A correction of the alert at t2, as revision 2."""
        self.alert(revision=2, kind=kind, source="backfill", cause=cause, emitted_at=NOON + days(1), **changed)
        content = _record({"revision": 2, "kind": kind, "cause": cause, **changed})
        fill(
            self.root,
            CORRECTIONS,
            {n: v for n, v in content.items() if n in CORRECTIONS.columns} | {"day": day, "run_id": "run"},
        )

    def explained(self, alert: str, *options: str) -> str:
        """What the command prints."""
        given = {"NIGHTJAR_LAKE_DIR": str(self.root), "NIGHTJAR_BOOTSTRAP_SERVERS": "127.0.0.1:9", "COLUMNS": "200"}
        done = CliRunner().invoke(app, ["explain", alert, *options], env=given)
        assert done.exit_code == 0, done.output
        return done.output

    def mapped(self, alert: str) -> dict[str, Any]:
        """The same with --json."""
        found: dict[str, Any] = json.loads(self.explained(alert, "--json"))
        return found


def small_lake(root: Path) -> Ground:
    """Two payments of Ann within ten minutes, the rule, and nothing published about it."""
    found = Ground(root)
    add(root, payment("t1", NOON - 10 * MINUTES), payment("t2", NOON, offset=1))
    for table in (ALERTS, VIOLATIONS, RECONCILIATION, CORRECTIONS, RUNS):
        fill(root, table)
    found.publish(LIMIT)
    return found
