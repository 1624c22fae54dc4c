"""nightjar's metadata beside Spark's checkpoint, and which job may resume from it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nightjar.rules.durations import parse_duration
from nightjar.rules.rulebook import WHOLE_STREAM, RuleBook, ShuffleKey
from nightjar.rules.streams import load_streams, streams_from_mapping
from nightjar.rules.types import STRING, decimal
from nightjar.streaming.config import JobConfig, JobError
from nightjar.streaming.state.checkpoint import Checkpoint
from nightjar.streaming.state.metadata import buckets_of
from nightjar.streaming.state.state_files import FIRST, BucketFiles, files_of
from nightjar.streaming.state.statelog import Head

STREAMS = load_streams()
TRANSACTIONS = STREAMS["transactions"]
SHUFFLE_KEYS = RuleBook(STREAMS).shuffle_keys
NAMES = {"out": "payments", "in": "refunds"}


def declared(**changes: Any) -> dict[str, Any]:
    """The change of a configuration that declares transactions otherwise."""
    return {"streams": STREAMS | {"transactions": replace(TRANSACTIONS, **changes)}}


@pytest.fixture
def config(tmp_path: Path) -> JobConfig:
    """A job on a folder that does not exist yet."""
    return JobConfig(STREAMS, tmp_path / "checkpoint")


def test_a_checkpoint_keeps_its_name_and_takes_new_shuffle_keys_at_the_end(config: JobConfig) -> None:
    """Buckets are numbered by them: those there are stay where they are, whatever the order of declarations."""
    made = Checkpoint(config).settle(SHUFFLE_KEYS)
    assert made.shuffle_keys == tuple(SHUFFLE_KEYS)
    more = [*SHUFFLE_KEYS, ShuffleKey("transactions", WHOLE_STREAM)]
    again = Checkpoint(config).settle(more)
    assert (again.name, again.shuffle_keys) == (made.name, tuple(more))
    first = [ShuffleKey("added", "customer_id"), *more]
    assert Checkpoint(config).settle(first).shuffle_keys == (*more, first[0])
    with pytest.raises(JobError, match="its shuffle keys are not those of the rules"):
        Checkpoint(config).settle(SHUFFLE_KEYS)


def test_a_shuffle_key_that_was_added_lacks_what_was_read_before(config: JobConfig) -> None:
    """The others have what there was from the first offset on; also after the next start."""
    topic = STREAMS["transactions"].topic
    Checkpoint(config).settle(SHUFFLE_KEYS, lambda: {topic: {0: 3, 1: 0}})
    for folder, content in (("commits", ""), ("offsets", f"v1\n{{}}\n{json.dumps({topic: {'0': 9, '1': 4}})}")):
        (Checkpoint(config).query / folder).mkdir(parents=True)
        (Checkpoint(config).query / folder / "0").write_text(content)
    more = [*SHUFFLE_KEYS, ShuffleKey("transactions", WHOLE_STREAM)]
    Checkpoint(config).settle(more)
    found = Checkpoint(config).settle(more)
    assert [dict(found.lacks_before(number, TRANSACTIONS)) for number in (0, len(SHUFFLE_KEYS))] == [
        {0: 3},
        {0: 9, 1: 4},
    ]
    assert Checkpoint(config).metadata == found


def test_a_dropped_shuffle_key_keeps_its_number_and_has_no_state_when_it_is_wanted_again(config: JobConfig) -> None:
    """What it had is gone when it is dropped, and after a crash before that, when it is taken into use again (S5.8)."""
    whole, topic = ShuffleKey("transactions", WHOLE_STREAM), STREAMS["transactions"].topic
    more, number = [*SHUFFLE_KEYS, whole], len(SHUFFLE_KEYS)
    Checkpoint(config).settle(more)
    state = Checkpoint(config).state

    def leave(bucket: int) -> Path:
        files_of(state, bucket).put("entry", b"of an event")
        return state / str(bucket)

    kept, lost = leave(0), leave(number * config.buckets)
    found = Checkpoint(config).settle(more, unused={whole})
    assert (found.shuffle_keys, found.in_use, found.dropped) == (tuple(more), SHUFFLE_KEYS, {number})
    assert (kept.exists(), lost.exists()) == (True, False)
    assert Checkpoint(config).settle(more) == found == Checkpoint(config).metadata
    for folder, content in (("commits", ""), ("offsets", f"v1\n{{}}\n{json.dumps({topic: {'0': 9}})}")):
        (Checkpoint(config).query / folder).mkdir(parents=True)
        (Checkpoint(config).query / folder / "0").write_text(content)
    leave(number * config.buckets)
    again = Checkpoint(config).settle(more, wanted={whole})
    assert (again.in_use, again.dropped, again.lacks_before(number, TRANSACTIONS)) == (
        more,
        frozenset(),
        {0: 9},
    )
    assert (kept.exists(), lost.exists()) == (True, False)


def test_metadata_are_written_as_earlier_releases_did_and_theirs_are_read(tmp_path: Path) -> None:
    """Format 5 had neither optional fields nor offsets at which events began, nor shuffle keys that were added."""
    config = JobConfig({"logins": STREAMS["logins"]}, tmp_path, buckets=1)
    declared = {
        "topic": "logins",
        "event_id": "login_id",
        "event_time": "event_time",
        "entities": ["customer_id", "ip"],
        "fields": {
            "login_id": "string",
            "event_time": "timestamp",
            "customer_id": "string",
            "ip": "string",
            "device": "string",
            "status": "string",
        },
    }
    customers, addresses = ({"stream": "logins", "field": name} for name in declared["entities"])
    written = {"name": "a", "format": 5, "buckets": 1, "streams": {"logins": declared}}
    file = tmp_path / "nightjar.json"
    file.write_text(json.dumps({**written, "routes": [customers, addresses]}))
    batch(config, 0, {"logins": {"0": 3}})
    added = ShuffleKey("logins", "device")
    Checkpoint(config).settle([*RuleBook(config.streams).shuffle_keys, added])
    devices = {"stream": "logins", "field": "device", "began": {"0": 3}}
    expected = {
        "name": "a",
        "began": {},
        "format": 8,
        "buckets": 1,
        "streams": {"logins": declared | {"optional": []}},
        "routes": [customers, addresses, devices],
    }
    assert file.read_text() == json.dumps(expected, indent=1)
    Checkpoint(config).settle([*RuleBook(config.streams).shuffle_keys, added], unused={added})
    dropped = expected | {"routes": [customers, addresses, devices | {"dropped": True}]}
    assert file.read_text() == json.dumps(dropped, indent=1)
    with Checkpoint(config).rebuilding(RuleBook(config.streams).shuffle_keys, {"logins": {0: 3}}):
        pass
    name, folder = (json.loads(file.read_text())[key] for key in ("name", "folder"))
    rebuilt = {"name": name, "folder": folder, "begins": {"logins": {"0": 3}}, **expected}
    del rebuilt["began"]
    rebuilt["routes"] = [customers, addresses]
    assert file.read_text() == json.dumps(rebuilt | {"name": name}, indent=1)


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
            declared(tiebreaker="amount"),
            "transactions.tiebreaker was not declared and is amount. Declare it as it was, or `nightjar stream re",
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
    ids=["buckets", "stream gone", "topic", "entities", "tie-breaker", "new field", "field gone", "field changed"],
)
def test_a_job_that_reads_it_otherwise_is_refused(config: JobConfig, change: dict[str, Any], message: str) -> None:
    """Before Spark is there and when the shuffle keys are settled, with what differs and what to do."""
    Checkpoint(config).settle(SHUFFLE_KEYS)
    for refuses in (Checkpoint.refuse_unfit, lambda checkpoint: checkpoint.settle(SHUFFLE_KEYS)):
        with pytest.raises(JobError) as refused:
            refuses(Checkpoint(replace(config, **change)))
        assert message in str(refused.value)
        assert "A new folder as checkpoint_dir starts from nothing" in str(refused.value)


def with_union(names: dict[str, str], **fields: dict[str, str]) -> dict[str, Any]:
    """The change of a configuration that adds a union of payments and refunds, by their names in it."""
    common = {"event_id": "id", "event_time": "event_time"}
    kinds = {"id": "string", "event_time": "timestamp"}
    paid = {**common, "entities": ["customer_id"], "fields": {**kinds, "customer_id": "string"}}
    back = {**common, "entities": ["payee"], "fields": {**kinds, **dict.fromkeys(("payee", "payer"), "string")}}
    union = {"union": names, "entities": ["customer_id"], "fields": fields}
    return {"streams": streams_from_mapping({"payments": paid, "refunds": back, "moves": union}, "here")}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            with_union({"out": "payments", "back": "refunds"}, customer_id={"back": "payee"}),
            'streams.moves.union was ["out", "in"] and is ["out", "back"]. Declare it as it was, or `nightjar stream r',
        ),
        (
            with_union(NAMES, customer_id={"in": "payer"}, payer={"in": "payee"}),
            "streams.moves.fields.customer_id.in was payee and is payer. Declare it as it was, or `nightjar stream re",
        ),
        (
            with_union(dict(reversed(NAMES.items())), customer_id={"in": "payee"}),
            "streams.moves.topic was payments+refunds and is refunds+payments. Declare it as it was. A new folder",
        ),
    ],
    ids=["member's name", "member's field", "order"],
)
def test_a_union_whose_state_has_other_ids_or_values_is_refused(
    config: JobConfig, change: dict[str, Any], message: str
) -> None:
    """The members' names are in the ids of its events, and the values in the state have the names of that time."""
    made = replace(config, **with_union(NAMES, customer_id={"in": "payee"}))
    Checkpoint(made).settle(RuleBook(made.streams).shuffle_keys)
    Checkpoint(made).refuse_unfit()
    with pytest.raises(JobError) as refused:
        Checkpoint(replace(config, **change)).refuse_unfit()
    assert message in str(refused.value)


def test_what_decides_no_place_of_state_may_change(config: JobConfig) -> None:
    """Another lateness, another stream."""
    made = Checkpoint(config).settle(SHUFFLE_KEYS)
    patient = replace(TRANSACTIONS, allowed_lateness=parse_duration("1h"))
    more = STREAMS | {"transactions": patient, "more": replace(TRANSACTIONS, name="more", topic="more")}
    assert (
        Checkpoint(replace(config, streams=more)).settle([*SHUFFLE_KEYS, ShuffleKey("more", "customer_id")]).name
        == made.name
    )


def test_optional_fields_may_be_added_and_a_field_may_become_optional(config: JobConfig) -> None:
    """Also to a checkpoint from before there were any; they are then kept, and cannot become plain again."""
    made = Checkpoint(config).settle(SHUFFLE_KEYS)
    file = config.checkpoint / "nightjar.json"
    kept = json.loads(file.read_text())
    for stream in kept["streams"].values():
        del stream["optional"]
    file.write_text(json.dumps(kept))
    wider = {"fields": {"device": STRING, **TRANSACTIONS.fields}, "optional": frozenset({"device", "amount"})}
    added = replace(config, **declared(**wider))
    Checkpoint(added).refuse_unfit()
    found = Checkpoint(added).settle(SHUFFLE_KEYS)
    assert (found.name, found.shuffle_keys) == (made.name, made.shuffle_keys)
    assert Checkpoint(added).settle(SHUFFLE_KEYS) == found
    plain = replace(config, **declared(**wider | {"optional": frozenset({"device"})}))
    with pytest.raises(JobError, match="amount was optional and is not") as refused:
        Checkpoint(plain).settle(SHUFFLE_KEYS)
    assert 'Declare it optional: amount = {type = "decimal(12,2)", optional = true}' in str(refused.value)
    with pytest.raises(JobError, match="device was string and is no longer declared"):
        Checkpoint(config).settle(SHUFFLE_KEYS)


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
    Checkpoint(config).query.mkdir(parents=True)
    if text is not None:
        (config.checkpoint / "nightjar.json").write_text(text)
    with pytest.raises(JobError, match=message) as refused:
        Checkpoint(config).refuse_unfit()
    assert "`nightjar stream rebuild`" in str(refused.value)


def test_a_new_checkpoint_keeps_where_its_events_begin(config: JobConfig) -> None:
    """Kafka may have deleted earlier ones: a window that reaches behind is incomplete, also after a restart."""
    began = {"logins": {0: 7, 1: 0}}
    assert Checkpoint(config).settle(SHUFFLE_KEYS, lambda: began).began == began
    assert Checkpoint(config).settle(SHUFFLE_KEYS, lambda: {"logins": {0: 9}}).began == began


def batch(config: JobConfig, number: int, offsets: dict[str, dict[str, int]]) -> None:
    """A committed batch, as Spark writes it."""
    for folder in ("offsets", "commits"):
        (Checkpoint(config).query / folder).mkdir(parents=True, exist_ok=True)
        (Checkpoint(config).query / folder / str(number)).write_text(f"v1\n{{}}\n{json.dumps(offsets)}")


def state_of(config: JobConfig, head: Head, folder: Path | None = None) -> Path:
    """The state of a bucket after a batch, as a task writes it."""
    checkpoint = Checkpoint(config)
    if folder is None:
        checkpoint.begin_run()
    files_of(folder or checkpoint.state, 3, FIRST if folder else checkpoint.run_id).keep(head)
    return folder or checkpoint.state


def run_of(config: JobConfig) -> tuple[Path, BucketFiles]:
    """The folder of the state, and the files of a bucket, in a new run."""
    checkpoint = Checkpoint(config)
    checkpoint.begin_run()
    assert Checkpoint(config).run_id == checkpoint.run_id
    return checkpoint.state, files_of(checkpoint.state, 3, checkpoint.run_id)


def test_a_checkpoint_says_how_many_buckets_there_are(config: JobConfig) -> None:
    """A new one has fewer in real time, where one process has them all."""
    assert buckets_of(config.checkpoint, "micro-batch") == 4
    assert buckets_of(config.checkpoint, "real-time") == 1
    Checkpoint(replace(config, buckets=3)).settle(SHUFFLE_KEYS)
    assert buckets_of(config.checkpoint, "real-time") == 3


def test_a_rebuilt_checkpoint_begins_at_the_given_offsets_with_its_state(config: JobConfig) -> None:
    """Which is there until a batch is committed that changed it."""
    earlier = Checkpoint(config).settle(SHUFFLE_KEYS)
    batch(config, 7, {"logins": {"0": 5}})
    wider = replace(config, buckets=8)
    begins = {"logins": {0: 3, 1: 0}, "rules": {0: 2}}
    old = state_of(config, Head(8))
    with Checkpoint(wider).rebuilding(SHUFFLE_KEYS, begins) as state:
        state_of(wider, Head(0, clock=1), state)
        assert Checkpoint(config).committed_offsets() == {"logins": {0: 5}}, "the old one is there until then"
    assert not (config.checkpoint / "query").exists()
    with pytest.raises(JobError, match="made with buckets = 8"):
        Checkpoint(config).refuse_unfit()
    made = Checkpoint(wider).settle(SHUFFLE_KEYS)
    assert made.name != earlier.name
    here, first = run_of(wider)
    assert (Checkpoint(wider).committed_offsets(), here) == (begins, state)
    assert not old.exists()
    first.keep(Head(1, clock=2))
    _, second = run_of(wider)
    assert second.before(2).clock == 1, "the batch was not committed"
    second.keep(Head(1, clock=2))
    batch(wider, 0, {"logins": {"0": 4, "1": 0}})
    here, third = run_of(wider)
    assert (Checkpoint(wider).committed_offsets(), here) == ({"logins": {0: 4, 1: 0}}, state)
    assert third.before(2).clock == 2
    assert Checkpoint(wider).settle(SHUFFLE_KEYS) == made
    rebuilt = Checkpoint(wider)
    with rebuilt.rebuilding(SHUFFLE_KEYS, begins):
        pass
    assert rebuilt.metadata == Checkpoint(wider).metadata != made
    assert [path.name for path in sorted(config.checkpoint.iterdir())] == [
        "nightjar.json",
        Checkpoint(wider).query.parent.name,
    ]


def test_rebuilding_that_does_not_end_leaves_the_old_checkpoint(config: JobConfig) -> None:
    """Whether it fails or its process is killed; what it left goes when it is tried again."""
    made = Checkpoint(config).settle(SHUFFLE_KEYS)
    batch(config, 7, {"logins": {"0": 5}})
    with pytest.raises(ZeroDivisionError), Checkpoint(config).rebuilding(SHUFFLE_KEYS, {}):
        raise ZeroDivisionError
    assert Checkpoint(config).settle(SHUFFLE_KEYS) == made
    assert not list(config.checkpoint.glob("rebuilt-*"))
    (config.checkpoint / "rebuilt-killed" / "state").mkdir(parents=True)
    assert Checkpoint(config).settle(SHUFFLE_KEYS) == made
    assert Checkpoint(config).committed_offsets() == {"logins": {0: 5}}
    with Checkpoint(config).rebuilding(SHUFFLE_KEYS, {}):
        assert len(list(config.checkpoint.glob("rebuilt-*"))) == 1


def test_offsets_are_those_of_the_last_committed_batch(config: JobConfig) -> None:
    """Of every source; a batch that began and was not committed will be repeated."""
    assert Checkpoint(config).committed_offsets() == {}
    for folder, batches in (("offsets", (9, 10, 11)), ("commits", (9, 10))):
        (Checkpoint(config).query / folder).mkdir(parents=True)
        for batch in batches:
            text = f"v1\n{{}}\n{json.dumps({'logins': {'0': batch, '1': 7}})}\n{json.dumps({'clock': {'0': 3}})}\n-"
            (Checkpoint(config).query / folder / str(batch)).write_text(text)
            (Checkpoint(config).query / folder / f".{batch}.crc").write_bytes(b"")
    assert Checkpoint(config).committed_offsets() == {"logins": {0: 10, 1: 7}, "clock": {0: 3}}
