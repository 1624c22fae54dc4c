"""Records as the job writes them: an alert, and a report of the driver."""

from typing import Any

ALERT = {
    "alert_id": "a1",
    "revision": 1,
    "kind": "alert",
    "rule_id": "burst",
    "rule_version": 2,
    "rule_state": "active",
    "stream": "transactions",
    "group": {"customer_id": "c7"},
    "event_id": "t1",
    "event_time": "2026-01-05T10:00:00.000000Z",
    "measures": {"payments": 4},
    "severity": "high",
    "text": "4 payments",
    "muted": False,
    "source": "stream",
    "emitted_at": "2026-01-05T10:00:01.000000Z",
}


def word(at: int, **more: Any) -> dict[str, Any]:
    """A report of the driver."""
    return {
        "kind": "job",
        "state": "running",
        "run_id": "i",
        "process": 7,
        "at": at,
        "batches": 2,
        "batch": 9,
        "rows": 100,
        "parts_ms": {"run": 30.0, "whole": 40.0},
        "slowest_ms": 60,
        "lag": {"transactions": {"events": 12, "seconds": 1.5}},
        "skew": 12_345_678,
        **more,
    }
