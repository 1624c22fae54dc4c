"""Nights in any order, whole and partial, over a lake that several days of a job have left."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from lake.scanning import scan
from lake.tables import VIOLATIONS
from rules.timestamps import from_microseconds
from tests.support.histories import declared
from tests.support.night_runs import NightRun
from tests.support.random_runs import Batch, Published, Restart, Run

SECOND, MINUTE, HOUR, DAY = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
MIDNIGHT = 1_800_057_600 * SECOND // DAY * DAY
STREAM = declared(("who", "place"), event_id="id", event_time="at", allowed_lateness="10m", max_future_skew="1m")
RULE = {
    "id": "twice", "stream": "things", "group_by": ["who"], "when": "n >= 2",
    "measures": {"n": {"count": "*", "over": "1h"}},
}  # fmt: skip


def played(folder: Path, events: Iterable[tuple[str, int, int]], *rules: dict[str, Any]) -> NightRun:
    """A job that has read these events of x, each in a batch of its own: id, when it happened, and when it arrived (µs
    after MIDNIGHT). rules: published an hour before that."""
    run = NightRun(Run(STREAM, []), folder)
    run.take(Restart(0, STREAM.allowed_lateness, elsewhere=False))
    messages = [
        Published(number, MIDNIGHT - HOUR, rule | {"author": "ann", "reason": "test"})
        for number, rule in enumerate(rules)
    ]
    for number, (name, happened, arrives) in enumerate(events):
        event = {"id": name, "at": MIDNIGHT + happened, "who": "x", "place": "p", "arrival": MIDNIGHT + arrives}
        placed = event | {"partition": 0, "offset": number}
        run.nights.send([placed])
        run.take(Batch(MIDNIGHT + arrives, messages, [placed], MIDNIGHT + arrives, again=False))
        messages = []
    return run


def passed(run: NightRun, day: int, **asked: Any) -> dict[str, Any]:
    """The night of a day, and the archive after it."""
    counts = run.nights.night(date_of(day), now=MIDNIGHT + 9 * DAY, **asked)
    run.nights.archive(MIDNIGHT + 10 * DAY)
    return counts


def date_of(day: int) -> Any:
    """The date that begins so many days after MIDNIGHT."""
    return from_microseconds(MIDNIGHT + day * DAY).date()


@pytest.mark.parametrize("asked", [{"rules": ("twice",)}, {"groups": {"who": ("x",)}}, {}])
def test_an_older_day_run_again_reverts_nothing_of_a_later_run(tmp_path: Path, asked: dict[str, Any]) -> None:
    """Neither where that was about some rules or groups: what it has announced with a late event stands."""
    noon = 12 * HOUR
    events = [("a", noon, noon), ("late", noon - 30 * MINUTE, DAY + noon), ("z", DAY + noon, DAY + noon)]
    run = played(tmp_path, events, RULE)
    run.nights.archive(MIDNIGHT + 10 * DAY)
    assert passed(run, 0)["published"] == 0
    assert passed(run, 1, **asked)["published"] == 1
    for day in (0, 1, 0):
        counts = passed(run, day)
        assert (counts["published"], counts["violations_changed"]) == (0, 0), day
    assert [(each["event_id"], each["revision"], each["kind"]) for each in run.nights.alerts] == [("a", 1, "alert")]
    assert scan(run.nights.root, VIOLATIONS).collect().height == 1
