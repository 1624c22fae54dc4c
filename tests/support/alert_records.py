"""Valid records of the alerts topic: their ids match their members."""

from typing import Any

from nightjar.rules.alert_ids import alert_id
from nightjar.rules.canonical import canonical
from nightjar.rules.timestamps import parse_timestamp
from tests.support.reports import ALERT


def alert(event_id: str, **more: Any) -> dict[str, Any]:
    """An alert of an event, with other values for some members."""
    record = ALERT | {"event_id": event_id} | more
    instant = parse_timestamp(record["event_time"], zone_required=True)
    assert instant is not None
    named = alert_id(record["rule_id"], record["rule_version"], event_id, instant, canonical(record["group"]))
    return record | {"alert_id": named}
