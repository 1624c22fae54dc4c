"""nightjar's metadata beside Spark's checkpoint, and which job may resume from it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nightjar.rules.durations import parse_duration
from nightjar.rules.rulebook import WHOLE_STREAM, RuleBook, ShuffleKey
from nightjar.rules.streams import load_streams
from nightjar.rules.types import STRING, decimal
from nightjar.streaming.config import JobConfig, JobError
from nightjar.streaming.state.checkpoint import (
    Identity,
    committed_offsets,
    committed_state,
    last_run,
    query_folder,
    rebuilding,
    refuse_unfit,
    settle,
    state_folder,
)
from nightjar.streaming.state.state_files import FIRST, files_of
from nightjar.streaming.state.statelog import Head

STREAMS = load_streams()
TRANSACTIONS = STREAMS["transactions"]
SHUFFLE_KEYS = RuleBook(STREAMS).shuffle_keys


def declared(**changes: Any) -> dict[str, Any]:
    """The change of a configuration that declares transactions otherwise."""
    return {"streams": STREAMS | {"transactions": replace(TRANSACTIONS, **changes)}}


@pytest.fixture
def config(tmp_path: Path) -> JobConfig:
    """A job on a folder that does not exist yet."""
    return JobConfig(STREAMS, tmp_path / "checkpoint")


def test_a_checkpoint_keeps_its_name_and_takes_new_shuffle_keys_at_the_end(config: JobConfig) -> None:
    """Buckets are numbered by them: those there are stay where they are, whatever the order of declarations."""
    made = settle(config, SHUFFLE_KEYS)
    assert made.shuffle_keys == tuple(SHUFFLE_KEYS)
    more = [*SHUFFLE_KEYS, ShuffleKey("transactions", WHOLE_STREAM)]
    assert settle(config, more) == Identity(made.name, tuple(more))
    first = [ShuffleKey("added", "customer_id"), *more]
    assert settle(config, first).shuffle_keys == (*more, first[0])
    with pytest.raises(JobError, match="its routes are not those of the rules"):
        settle(config, SHUFFLE_KEYS)


def test_a_shuffle_key_that_was_added_lacks_what_was_read_before(config: JobConfig) -> None:
    """The others have what there was from the first offset on; also after the next start."""
    topic = STREAMS["transactions"].topic
    settle(config, SHUFFLE_KEYS, lambda: {topic: {0: 3, 1: 0}})
    for folder, content in (("commits", ""), ("offsets", f"v1\n{{}}\n{json.dumps({topic: {'0': 9, '1': 4}})}")):
        (query_folder(config) / folder).mkdir(parents=True)
        (query_folder(config) / folder / "0").write_text(content)
    more = [*SHUFFLE_KEYS, ShuffleKey("transactions", WHOLE_STREAM)]
    settle(config, more)
    found = settle(config, more)
    assert [dict(found.lacks_before(number, topic)) for number in (0, len(SHUFFLE_KEYS))] == [{0: 3}, {0: 9, 1: 4}]
    assert last_run(config) == (found, "")


def test_a_dropped_shuffle_key_keeps_its_number_and_has_no_state_when_it_is_wanted_again(config: JobConfig) -> None:
    """What it had is gone when it is dropped, and after a crash before that, when it is taken into use again (S5.8)."""
    whole, topic = ShuffleKey("transactions", WHOLE_STREAM), STREAMS["transactions"].topic
    more, number = [*SHUFFLE_KEYS, whole], len(SHUFFLE_KEYS)
    settle(config, more)
    state = state_folder(config)

    def leave(bucket: int) -> Path:
        files_of(state, bucket).put("entry", b"of an event")
        return state / str(bucket)

    kept, lost = leave(0), leave(number * config.buckets)
    found = settle(config, more, unused={whole})
    assert (found.shuffle_keys, found.in_use, found.dropped) == (tuple(more), SHUFFLE_KEYS, {number})
    assert (kept.exists(), lost.exists()) == (True, False)
    assert settle(config, more) == found == last_run(config)[0]  # type: ignore[index]
    for folder, content in (("commits", ""), ("offsets", f"v1\n{{}}\n{json.dumps({topic: {'0': 9}})}")):
        (query_folder(config) / folder).mkdir(parents=True)
        (query_folder(config) / folder / "0").write_text(content)
    leave(number * config.buckets)
    again = settle(config, more, wanted={whole})
    assert (again.in_use, again.dropped, again.lacks_before(number, topic)) == (more, frozenset(), {0: 9})
    assert (kept.exists(), lost.exists()) == (True, False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"buckets": 8},
            "made with buckets = 4, and the setting is 8. Set buckets = 4, or `nightjar stream rebuild --buckets 8`",
        ),
        (
            {"streams": {}},
            "which is no longer declared. Declare transactions, or `nightjar stream rebuild` writes a new one",
        ),
        (
            {"streams": STREAMS | {"transactions": replace(TRANSACTIONS, topic="others")}},
            "streams.transactions.topic was transactions and is others. Declare it as it was. A new folder",
        ),
        (
            {"streams": STREAMS | {"transactions": replace(TRANSACTIONS, entities=("customer_id",))}},
            'entities was ["customer_id", "terminal_id"] and is ["customer_id"]. Declare it as it was, or `nightjar',
        ),
        (
            declared(fields={**TRANSACTIONS.fields, "x": STRING}),
            'before it lack it. Declare it optional: x = {type = "string", optional = true}. A new folder',
        ),
        (
            declared(fields={name: kind for name, kind in TRANSACTIONS.fields.items() if name != "amount"}),
            (
                "fields.amount was decimal(12,2) and is no longer declared. "
                "Declare it, or `nightjar stream rebuild` writes a new one"
            ),
        ),
        (
            declared(fields={**TRANSACTIONS.fields, "amount": decimal(12, 3)}),
            "fields.amount was decimal(12,2) and is decimal(12,3). Declare it as it was. A new folder",
        ),
    ],
    ids=["buckets", "stream gone", "topic", "entities", "new field", "field gone", "field changed"],
)
def test_a_job_that_reads_it_otherwise_is_refused(config: JobConfig, change: dict[str, Any], message: str) -> None:
    """Before Spark is there and when the shuffle keys are settled, with what differs and what to do."""
    settle(config, SHUFFLE_KEYS)
    for refuses in (refuse_unfit, lambda changed: settle(changed, SHUFFLE_KEYS)):
        with pytest.raises(JobError) as refused:
            refuses(replace(config, **change))
        assert message in str(refused.value)
        assert "A new folder as checkpoint_dir starts from nothing" in str(refused.value)


def test_what_decides_no_place_of_state_may_change(config: JobConfig) -> None:
    """Another lateness, another stream."""
    made = settle(config, SHUFFLE_KEYS)
    patient = replace(TRANSACTIONS, allowed_lateness=parse_duration("1h"))
    more = STREAMS | {"transactions": patient, "more": replace(TRANSACTIONS, name="more", topic="more")}
    assert settle(replace(config, streams=more), [*SHUFFLE_KEYS, ShuffleKey("more", "customer_id")]).name == made.name


def test_optional_fields_may_be_added_and_a_field_may_become_optional(config: JobConfig) -> None:
    """Also to a checkpoint from before there were any; they are then kept, and cannot become plain again."""
    made = settle(config, SHUFFLE_KEYS)
    file = config.checkpoint / "nightjar.json"
    kept = json.loads(file.read_text())
    for stream in kept["streams"].values():
        del stream["optional"]
    file.write_text(json.dumps(kept))
    wider = {"fields": {"device": STRING, **TRANSACTIONS.fields}, "optional": frozenset({"device", "amount"})}
    added = replace(config, **declared(**wider))
    refuse_unfit(added)
    assert settle(added, SHUFFLE_KEYS) == made
    assert settle(added, SHUFFLE_KEYS) == made
    plain = replace(config, **declared(**wider | {"optional": frozenset({"device"})}))
    with pytest.raises(JobError, match="amount was optional and is not") as refused:
        settle(plain, SHUFFLE_KEYS)
    assert 'Declare it optional: amount = {type = "decimal(12,2)", optional = true}' in str(refused.value)
    with pytest.raises(JobError, match="device was string and is no longer declared"):
        settle(config, SHUFFLE_KEYS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "nightjar.json is missing"),
        ("{", "nightjar.json is not what nightjar wrote"),
        ("[]", "nightjar.json is not what nightjar wrote"),
        ('{"format": 9}', r"its format is 9, this release reads 5 to 8. `nightjar stream rebuild` writes a new one"),
        ('{"format": 5, "name": "x", "routes": []}', "nightjar.json lacks buckets, streams"),
    ],
)
def test_a_foreign_folder_is_refused(config: JobConfig, text: str | None, message: str) -> None:
    """What is not known to be a checkpoint of nightjar's is left alone."""
    query_folder(config).mkdir(parents=True)
    if text is not None:
        (config.checkpoint / "nightjar.json").write_text(text)
    with pytest.raises(JobError, match=message) as refused:
        refuse_unfit(config)
    assert "`nightjar stream rebuild`" in str(refused.value)


def test_a_new_checkpoint_keeps_where_its_events_begin(config: JobConfig) -> None:
    """Kafka may have deleted earlier ones: a window that reaches behind is incomplete, also after a restart."""
    began = {"logins": {0: 7, 1: 0}}
    assert settle(config, SHUFFLE_KEYS, lambda: began).began == began
    assert settle(config, SHUFFLE_KEYS, lambda: {"logins": {0: 9}}).began == began


def batch(config: JobConfig, number: int, offsets: dict[str, dict[str, int]]) -> None:
    """A committed batch, as Spark writes it."""
    for folder in ("offsets", "commits"):
        (query_folder(config) / folder).mkdir(parents=True, exist_ok=True)
        (query_folder(config) / folder / str(number)).write_text(f"v1\n{{}}\n{json.dumps(offsets)}")


def state_of(config: JobConfig, head: Head, folder: Path | None = None) -> Path:
    """The state of a bucket after a batch, as a task writes it."""
    run = FIRST if folder else "old"
    folder = folder or committed_state(config, run)
    files_of(folder, 3, run).keep(head)
    return folder


def test_a_rebuilt_checkpoint_begins_at_the_given_offsets_with_its_state(config: JobConfig) -> None:
    """Which is there until a batch is committed that changed it."""
    settle(config, SHUFFLE_KEYS)
    batch(config, 7, {"logins": {"0": 5}})
    wider = replace(config, buckets=8)
    begins = {"logins": {0: 3, 1: 0}, "rules": {0: 2}}
    old = state_of(config, Head(8))
    with rebuilding(wider, SHUFFLE_KEYS, begins) as (identity, state):
        state_of(wider, Head(0, clock=1), state)
        assert committed_offsets(config) == {"logins": {0: 5}}, "the old one is there until the new one is whole"
    assert not (config.checkpoint / "query").exists()
    with pytest.raises(JobError, match="made with buckets = 8"):
        refuse_unfit(config)
    assert settle(wider, SHUFFLE_KEYS) == identity
    assert (committed_offsets(wider), committed_state(wider, "first")) == (begins, state)
    assert not old.exists()
    files_of(state, 3, "first").keep(Head(1, clock=2))
    second = files_of(committed_state(wider, "second"), 3, "second")
    assert second.before(2).clock == 1, "the batch was not committed"
    second.keep(Head(1, clock=2))
    batch(wider, 0, {"logins": {"0": 4, "1": 0}})
    assert (committed_offsets(wider), committed_state(wider, "third")) == ({"logins": {0: 4, 1: 0}}, state)
    assert files_of(state, 3, "third").before(2).clock == 2
    assert settle(wider, SHUFFLE_KEYS) == identity
    with rebuilding(wider, SHUFFLE_KEYS, begins) as (again, _):
        pass
    assert again.name != identity.name
    assert [path.name for path in sorted(config.checkpoint.iterdir())] == [
        "nightjar.json",
        query_folder(wider).parent.name,
    ]


def test_rebuilding_that_does_not_end_leaves_the_old_checkpoint(config: JobConfig) -> None:
    """Whether it fails or its process is killed; what it left goes when it is tried again."""
    identity = settle(config, SHUFFLE_KEYS)
    batch(config, 7, {"logins": {"0": 5}})
    with pytest.raises(ZeroDivisionError), rebuilding(config, SHUFFLE_KEYS, {}):
        raise ZeroDivisionError
    assert settle(config, SHUFFLE_KEYS) == identity
    assert not list(config.checkpoint.glob("rebuilt-*"))
    (config.checkpoint / "rebuilt-killed" / "state").mkdir(parents=True)
    assert settle(config, SHUFFLE_KEYS) == identity
    assert committed_offsets(config) == {"logins": {0: 5}}
    with rebuilding(config, SHUFFLE_KEYS, {}):
        assert len(list(config.checkpoint.glob("rebuilt-*"))) == 1


def test_offsets_are_those_of_the_last_committed_batch(config: JobConfig) -> None:
    """Of every source; a batch that began and was not committed will be repeated."""
    assert committed_offsets(config) == {}
    for folder, batches in (("offsets", (9, 10, 11)), ("commits", (9, 10))):
        (query_folder(config) / folder).mkdir(parents=True)
        for batch in batches:
            text = f"v1\n{{}}\n{json.dumps({'logins': {'0': batch, '1': 7}})}\n{json.dumps({'clock': {'0': 3}})}\n-"
            (query_folder(config) / folder / str(batch)).write_text(text)
            (query_folder(config) / folder / f".{batch}.crc").write_bytes(b"")
    assert committed_offsets(config) == {"logins": {0: 10, 1: 7}, "clock": {0: 3}}
