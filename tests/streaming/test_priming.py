"""Which versions of rules wait for their history."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nightjar.rules.model import parse_rule
from nightjar.rules.rulebook import WHOLE_STREAM, RuleBook, ShuffleKey
from nightjar.rules.streams import load_streams
from nightjar.rules.versions import RuleVersion
from nightjar.streaming.config import JobConfig
from nightjar.streaming.priming.priming import Primer
from nightjar.streaming.state.checkpoint import Checkpoint

STREAMS = load_streams()
TOPIC = STREAMS["transactions"].topic
ENTITY, ADDED = ShuffleKey("transactions", "customer_id"), ShuffleKey("transactions", WHOLE_STREAM)


def version(**changes: Any) -> RuleVersion:
    """One that counts all transactions of an hour."""
    written = {"id": "many", "stream": "transactions", "group_by": [], "when": "n > 9"}
    written |= {"measures": {"n": {"count": "*", "over": "1h"}}} | changes
    return RuleVersion(parse_rule(written, STREAMS), 1, 0)


@pytest.fixture
def config(tmp_path: Path) -> JobConfig:
    """A job that has read nine transactions, and then added a shuffle key, for which there has been no batch yet."""
    made = JobConfig(STREAMS, tmp_path / "checkpoint", priming_rate=1000)
    checkpoint = Checkpoint(made)
    checkpoint.settle(RuleBook(STREAMS).shuffle_keys)
    for folder, content in (("commits", ""), ("offsets", f"v1\n{{}}\n{json.dumps({TOPIC: {'0': 9}})}")):
        (checkpoint.query / folder).mkdir(parents=True)
        (checkpoint.query / folder / "0").write_text(content)
    return made


def primings(config: JobConfig) -> Primer:
    """Of a job with this configuration that runs with the added shuffle key."""
    checkpoint = Checkpoint(config)
    checkpoint.settle([*RuleBook(STREAMS).shuffle_keys, ADDED])
    return Primer(config, checkpoint)


def test_a_version_on_a_new_shuffle_key_waits_also_before_the_first_batch_of_its_buckets(config: JobConfig) -> None:
    """S5.7: nothing is known of their state then, but that it will not have the nine transactions."""
    priming = primings(config)
    assert "its windows reach back 1h" in str(priming.lacking(version(), ADDED))
    assert priming.lacking(version(id="any", measures={}, when="TRUE"), ADDED) is None
    assert priming.lacking(version(id="of_one", group_by=["customer_id"]), ENTITY) is None, "it has all"
    assert primings(replace(config, priming_rate=0)).lacking(version(), ADDED) is None
