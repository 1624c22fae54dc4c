"""The id of an alert, and the text of a group that is part of it."""

import json

import pyarrow as pa

from nightjar.rules.canonical import canonical
from nightjar.rules.engine.alert_columns import described_groups


def test_the_engine_writes_a_group_as_whoever_reads_it_does() -> None:
    """Every character: the lake makes the id again from the record that it reads."""
    texts = [chr(code) for code in range(0x3000) if not 0xD800 <= code < 0xE000] + ["\ufeff", "\uffff", "😀", '\\"/']
    for name in ("who", '\u2028\x7f"'):
        written = described_groups({name: pa.array(texts), "n": pa.array(range(len(texts)))}, len(texts))
        assert written.to_pylist() == [canonical({name: text, "n": n}) for n, text in enumerate(texts)]
    assert canonical(json.loads('{"ratio":1e16}')) == canonical({"ratio": 10_000_000_000_000_000.0})
