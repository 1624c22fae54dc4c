"""Replays a file of events to Kafka: at any speed and with any share of flaws, reproducible from one seed.

`replay_plan(table, stream, options)` is a pure function that plans which record is sent when; `send` sends the plan.
"""

from nightjar.replay.plan import RecordKind, ReplayOptions, replay_batches, replay_plan
from nightjar.replay.sending import Report, send
from nightjar.replay.together import send_together

__all__ = ["RecordKind", "ReplayOptions", "Report", "replay_batches", "replay_plan", "send", "send_together"]
