"""What is kept beside Spark's checkpoint, and which job may go on from it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rules.durations import parse_duration
from rules.streams import load_streams
from rules.types import STRING
from streaming.checkpoint import Identity, committed_offsets, query_folder, refuse_unfit, settle
from streaming.config import JobConfig, JobError
from streaming.rulebook import WHOLE_STREAM, Route, RuleBook

STREAMS = load_streams()
TRANSACTIONS = STREAMS["transactions"]
ROUTES = RuleBook(STREAMS, 0).routes


@pytest.fixture
def config(tmp_path: Path) -> JobConfig:
    """A job on a folder that does not exist yet."""
    return JobConfig(STREAMS, {}, {}, tmp_path / "checkpoint", ())


def test_a_checkpoint_keeps_its_name_and_takes_new_routes_at_the_end(config: JobConfig) -> None:
    """Buckets are numbered by the routes: those there are stay where they are, whatever the order of declarations."""
    made = settle(config, ROUTES)
    assert made.routes == tuple(ROUTES)
    more = [*ROUTES, Route("transactions", WHOLE_STREAM)]
    assert settle(config, more) == Identity(made.name, tuple(more))
    first = [Route("added", "customer_id"), *more]
    assert settle(config, first).routes == (*more, first[0])
    with pytest.raises(JobError, match="its routes are not those of the rules topic"):
        settle(config, ROUTES)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"buckets": 8}, "made with buckets = 4, and the setting is 8. Set buckets = 4"),
        ({"shuffle_partitions": 3}, "Set shuffle_partitions = 2"),
        ({"streams": {}}, "it holds events of stream transactions, which is no longer declared"),
        (
            {"streams": STREAMS | {"transactions": replace(TRANSACTIONS, topic="others")}},
            "streams.transactions.topic was transactions and is others",
        ),
        (
            {"streams": STREAMS | {"transactions": replace(TRANSACTIONS, fields={**TRANSACTIONS.fields, "x": STRING})}},
            "streams.transactions.fields was",
        ),
    ],
    ids=["buckets", "partitions", "stream gone", "topic", "fields"],
)
def test_a_job_that_reads_it_otherwise_is_refused(config: JobConfig, change: dict[str, Any], said: str) -> None:
    """Before Spark is there and when the routes are settled, with what to do."""
    settle(config, ROUTES)
    for refuses in (refuse_unfit, lambda changed: settle(changed, ROUTES)):
        with pytest.raises(JobError) as refused:
            refuses(replace(config, **change))
        assert said in str(refused.value)
        assert "or set checkpoint_dir to a new folder" in str(refused.value)


def test_what_decides_no_place_of_state_may_change(config: JobConfig) -> None:
    """Another lateness, another stream."""
    made = settle(config, ROUTES)
    patient = replace(TRANSACTIONS, allowed_lateness=parse_duration("1h"))
    more = STREAMS | {"transactions": patient, "more": replace(TRANSACTIONS, name="more", topic="more")}
    assert settle(replace(config, streams=more), [*ROUTES, Route("more", "customer_id")]).name == made.name


@pytest.mark.parametrize(
    ("text", "said"),
    [(None, "nightjar.json is missing"), ("{", "nightjar.json is not JSON"), ('{"format": 9}', "its format is 9")],
)
def test_a_foreign_folder_is_refused(config: JobConfig, text: str | None, said: str) -> None:
    """What is not known to be a checkpoint of nightjar's is left alone."""
    query_folder(config).mkdir(parents=True)
    if text is not None:
        (config.checkpoint / "nightjar.json").write_text(text)
    with pytest.raises(JobError, match=said):
        refuse_unfit(config)


def test_offsets_are_those_of_the_last_committed_batch(config: JobConfig) -> None:
    """A batch that began and was not committed will be done again."""
    assert committed_offsets(config) == {}
    for folder, batches in (("offsets", (9, 10, 11)), ("commits", (9, 10))):
        (query_folder(config) / folder).mkdir(parents=True)
        for batch in batches:
            text = f"v1\n{{}}\n{json.dumps({'logins': {'0': batch, '1': 7}})}"
            (query_folder(config) / folder / str(batch)).write_text(text)
            (query_folder(config) / folder / f".{batch}.crc").write_bytes(b"")
    assert committed_offsets(config) == {"logins": {0: 10, 1: 7}}
