"""The id of an alert, and the text of a group that is part of it."""

import json

import pyarrow as pa

from rules.alert_ids import group_text
from rules.engine.records import json_objects


def test_the_engine_writes_a_group_as_whoever_reads_it_does() -> None:
    """Every character: the lake makes the id again from the record that it reads."""
    texts = [chr(code) for code in range(0x3000) if not 0xD800 <= code < 0xE000] + ["\ufeff", "\uffff", "😀", '\\"/']
    for name in ("who", '\u2028\x7f"'):
        written = json_objects({name: pa.array(texts), "n": pa.array(range(len(texts)))}, len(texts))
        assert written.to_list() == [group_text({name: text, "n": n}) for n, text in enumerate(texts)]
    assert group_text(json.loads('{"ratio":1e16}')) == group_text({"ratio": 10_000_000_000_000_000.0})
