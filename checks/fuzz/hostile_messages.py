"""Hostile messages for the topics other than events, and for the headers of events."""

from __future__ import annotations

import json

HEADERS: tuple[list[tuple[str, bytes]], ...] = (
    [],
    [("traceparent", b"00-x-y-01")],
    [("sent_at", b"1")],
    [("sent_at", b"x")],
    [("sent_at", b"")],
    [("sent_at", b"9" * 40)],
    [("", b"")],
    [("sent_at", b"\xff"), ("sent_at", b"5")],
    [("x", b"\x00" * 1000)],
)
# What stopped the job, or would have: control messages of wrong types, half a pair, an answer larger than Kafka takes.
MESSAGES = (
    None,
    b"",
    b'{"control": []}',
    b'{"control": {"pause": 1}, "rule": "large"}',
    b'{"control": "activate", "rule": []}',
    b'{"control": "activate", "rule": "large", "rule_version": 99}',
    b'{"id": "\\ud800"}',
    b'{"\\udc00": 1}',
    b'{"id": "x", "when": "\\ud83d"}',
    b"[" * 100_000,
    b'{"id": ' + b"[" * 980 + b"]" * 980 + b"}",
    json.dumps({f"k{number}": 1 for number in range(40_000)}).encode(),
    b'{"id": "' + b"a" * 900_000 + b'"}',
    b"\xff" * 900_000,
    b'{"id":"m","stream":"transactions","group_by":[],"when":"m>1","measures":{"m":{"function":"sum","field":null,"over":"1h"}}}',
)
CLOCKS = (
    None,
    b"",
    b"[]",
    b"{}",
    b'{"run_id": 5, "clocks": 3}',
    b'{"run_id": "x", "clocks": {"transactions": 1e999}}',
    b"[" * 5000,
    b'{"run_id": "x", "clocks": {"transactions": ' + b"9" * 4000 + b"}}",
    b'{"run_id": "x", "clocks": null}',
)
# Anybody may write to the topics that the job answers on, too.
ANSWERS = (
    None,
    b"",
    b'{"alert_id": "\\ud800"}',
    b'{"rule_id": {"\\udfff": 1}}',
    b'{"revision": 1e400}',
    b"\xff",
    b"[" * 5000,
    b"[1]",
)
