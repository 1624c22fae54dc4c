"""A stream whose fields stand anywhere in a record, with times as they are written."""

from nightjar.rules.streams import Stream, streams_from_mapping

NESTED: Stream = streams_from_mapping(
    {
        "nested": {
            "event_id": "id",
            "event_time": "at",
            "entities": ["who"],
            "fields": {
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
            },
        }
    },
    "tests",
)["nested"]
