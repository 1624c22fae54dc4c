"""Quiet hours: whether they are on, by the clocks of a zone."""

from datetime import time
from zoneinfo import ZoneInfo

import pytest

from nightjar.notifications.quiet import QuietHours
from nightjar.rules.timestamps import parse_timestamp

BERLIN = ZoneInfo("Europe/Berlin")
NIGHT = QuietHours((time(22), time(7)), BERLIN)
NOON = QuietHours((time(12), time(13, 30)), BERLIN)
WEEKEND = QuietHours(None, BERLIN, days=frozenset({5, 6}))


@pytest.mark.parametrize(
    ("hours", "instant", "held"),
    [
        (NIGHT, "2026-01-05T20:59:59.999999Z", False),
        (NIGHT, "2026-01-05T21:00:00Z", True),
        (NIGHT, "2026-01-06T05:59:59Z", True),
        (NIGHT, "2026-01-06T06:00:00Z", False),
        (NIGHT, "2026-07-05T20:00:00Z", True),
        (NIGHT, "2026-07-06T05:00:00Z", False),
        (NOON, "2026-01-05T10:59:59Z", False),
        (NOON, "2026-01-05T11:00:00Z", True),
        (NOON, "2026-01-05T12:30:00Z", False),
        (NIGHT, "2026-03-29T04:59:59Z", True),  # the clocks were put forward in this night
        (NIGHT, "2026-03-29T05:00:00Z", False),
        (NIGHT, "2026-10-25T05:59:59Z", True),  # and back
        (NIGHT, "2026-10-25T06:00:00Z", False),
        (QuietHours((time(2, 30), time(4)), BERLIN), "2026-03-29T01:29:59Z", False),  # 02:30 does not exist
        (QuietHours((time(2, 30), time(4)), BERLIN), "2026-03-29T01:30:00Z", True),
        (WEEKEND, "2026-01-09T22:59:59Z", False),  # a Friday
        (WEEKEND, "2026-01-09T23:00:00Z", True),
        (WEEKEND, "2026-01-11T22:59:59Z", True),
        (WEEKEND, "2026-01-11T23:00:00Z", False),
        (QuietHours(NIGHT.hours, BERLIN, days=WEEKEND.days), "2026-01-12T05:59:59Z", True),
    ],
)
def test_they_are_on(hours: QuietHours, instant: str, held: bool) -> None:
    """From their beginning to before their end, past midnight too."""
    found = parse_timestamp(instant, zone_required=True)
    assert found is not None
    assert hours.hold(found) is held
