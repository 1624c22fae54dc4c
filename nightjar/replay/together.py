"""Sends several streams' plans as one replay, in the order of arrival across all of them.

The job evicts events by the latest arrival time it has read (S11.2), so no record may be sent after one with a much
later arrival, on any topic. Therefore each step of arrival time is fully delivered before the next begins, however slow
the machine is.
"""

import math
import time
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nightjar.configuration.schemas import registry_of
from nightjar.configuration.settings import Settings
from nightjar.formats.encoding import Encoder
from nightjar.kafka.clients import explained, producer
from nightjar.replay.sending import Sender
from nightjar.rules.streams import Stream

# Microseconds. Records within one step may reach Kafka in any order; far below any stream's allowed lateness.
STEP = 60_000_000


def send_together(
    settings: Settings,
    streams: Mapping[str, Stream],
    plans: Mapping[str, pa.Table],
    *,
    speed: float,
    begins: int,
    progress: Callable[[int], object] = lambda _: None,
) -> None:
    """Send each stream's plan (with kept times) to its topic, and wait until all is delivered.

    begins: µs; records with this arrival are due at once, later ones at the pace of their arrivals times `speed`.

    Raises:
        SchemaError, RegistryError, KafkaError: as `send` does.
    """
    dues = {name: _microseconds(plan["arrival_time"]) for name, plan in plans.items()}
    last = max((int(due[-1]) for due in dues.values() if due.size), default=begins)
    topics = ", ".join(streams[name].topic for name in plans)
    with producer(settings) as client, explained(settings, f"sending to topics {topics}"):
        encoders = {name: Encoder(streams[name], registry_of(settings)).encode for name in plans}
        senders = {name: Sender(client, streams[name].topic, stamp=True, encode=encoders[name]) for name in plans}
        began = time.monotonic()
        for step in range(begins, last + 1, STEP):
            if not math.isinf(speed):
                time.sleep(max(0.0, (step - begins) / 1_000_000 / speed - (time.monotonic() - began)))
            for name, plan in plans.items():
                begin, end = np.searchsorted(dues[name], [step, step + STEP])
                if begin < end:
                    senders[name].send(plan.slice(begin, end - begin))
                    progress(int(end - begin))
            for sender in senders.values():
                sender.finish()


def _microseconds(column: pa.ChunkedArray) -> NDArray[np.int64]:
    return np.asarray(column.cast(pa.int64()))
