"""Streams whose fields stand anywhere in a record, with times as they are written; one has derived fields too."""

from typing import Any

from nightjar.rules.streams import Stream, streams_from_mapping

_FIELDS: dict[str, Any] = {
    "id": {"type": "string", "from": "meta.id"},
    "at": {"type": "timestamp", "from": "meta.times[1]", "unit": "s"},
    "who": {"type": "string", "from": '"user.name".first'},
    "amount": {"type": "decimal(12,2)", "from": "payment.amount.value"},
    "second": {"type": "decimal(12,2)", "from": "prices[1]", "optional": True},
    "fee": {"type": "decimal(12,2)", "from": '"net/gross é"."x/y (%)"', "optional": True},
    "sku": {"type": "string", "from": "items[0].sku", "optional": True},
    "local": {"type": "timestamp", "format": "%d/%m/%Y %H:%M:%S", "zone": "Europe/Berlin"},
    "logged": {"type": "timestamp", "from": "@timestamp", "unit": "ns"},
    "day": {"type": "timestamp", "format": "%Y%m%d", "zone": "UTC", "optional": True},
    "berlin": {"type": "timestamp", "zone": "Europe/Berlin", "sensitive": True},
}
_DERIVED: dict[str, Any] = {
    "payer": {"sql": "LOWER(who)"},
    "hour": {"sql": "HOUR(at AT TIME ZONE 'Europe/Berlin')"},
    "doubled": {"sql": "amount * 2"},
    "share": {"sql": "second / amount", "sensitive": True},
    "is_large": {"sql": "amount > 10 OR second IS NULL"},
    "seconds": {"sql": "EXTRACT(EPOCH FROM at) - EXTRACT(EPOCH FROM berlin)"},
    "earliest": {"sql": "CASE WHEN day < logged THEN day ELSE logged END"},
}


def _stream(name: str, fields: dict[str, Any]) -> Stream:
    declared = {"event_id": "id", "event_time": "at", "entities": ["who"], "fields": fields}
    return streams_from_mapping({name: declared}, "tests")[name]


NESTED = _stream("nested", _FIELDS)
DERIVED = _stream("derived", {**_DERIVED, **_FIELDS})
