"""The columns of parsed events beside their stream's fields: where each came from, and when."""

from __future__ import annotations

import pyarrow as pa

from contracts.headers import SENT_AT
from rules.streams import Stream

PRIMARY = "primary"
# In a table of announcements: the value of the route's field in the alert's group.
ROUTED_BY = "routed_by"


def events_schema(stream: Stream) -> pa.Schema:
    """The columns of packed events: the stream's fields and where each event came from.

    primary: of the buckets that get the event, one speaks for it where it is to be said once.
    """
    return pa.schema(
        [
            *stream.schema,
            ("arrival_time", pa.timestamp("us", "UTC")),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            (SENT_AT, pa.int64()),
            (PRIMARY, pa.bool_()),
        ]
    )
