"""The schema of parsed events: the stream's fields plus position, arrival and flags."""

from __future__ import annotations

import pyarrow as pa

from nightjar.contracts.headers import SENT_AT
from nightjar.rules.streams import Stream
from nightjar.rules.types import INSTANT

PRIMARY = "primary"
# In a table of published alerts: the value of the shuffle key's field in the alert's group.
SHUFFLED_BY = "shuffled_by"


def events_schema(stream: Stream) -> pa.Schema:
    """The columns of packed events: the stream's fields, arrival, Kafka position and `sent_at`.

    primary: of the buckets that get the event, one reports it where it is to be reported once.
    """
    return pa.schema(
        [
            *stream.schema,
            ("arrival_time", INSTANT),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            (SENT_AT, pa.int64()),
            (PRIMARY, pa.bool_()),
        ]
    )
