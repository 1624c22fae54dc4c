"""The id of an alert, and the text of a group that is part of it."""

import json

import pyarrow as pa

from nightjar.rules.canonical import canonical
from nightjar.rules.engine.alert_columns import described_groups
from nightjar.rules.engine.columns import FEW


def test_the_engine_writes_a_group_as_whoever_reads_it_does() -> None:
    """Every character: the lake makes the id again from the record that it reads."""
    texts = [chr(code) for code in range(0x3000) if not 0xD800 <= code < 0xE000] + ["\ufeff", "\uffff", "😀", '\\"/']
    for name in ("who", '\u2028\x7f"'):
        written = described_groups({name: pa.array(texts), "n": pa.array(range(len(texts)))}, len(texts))
        few = [
            text
            for at in range(0, len(texts), FEW)
            for some in (texts[at : at + FEW],)
            for text in described_groups(
                {name: pa.array(some), "n": pa.array(range(at, at + len(some)))}, len(some)
            ).to_pylist()
        ]
        assert few == written.to_pylist()
        assert few == [canonical({name: text, "n": n}) for n, text in enumerate(texts)]
    assert canonical(json.loads('{"ratio":1e16}')) == canonical({"ratio": 10_000_000_000_000_000.0})
