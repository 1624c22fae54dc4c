"""Sending a file of events to Kafka as if they happened: in any order, at any speed, with any flaws, all from one seed.

`replay_plan(table, stream, options)` says which record is sent when, as a pure function; `send` sends it.
"""

from nightjar.replay.plan import Kind, ReplayOptions, replay_batches, replay_plan
from nightjar.replay.sending import Report, send
from nightjar.replay.together import send_together

__all__ = ["Kind", "ReplayOptions", "Report", "replay_batches", "replay_plan", "send", "send_together"]
