"""Objects, folders and leases in a real store."""

import threading
from pathlib import Path

import pytest

from nightjar.configuration.settings import load_settings
from nightjar.operations import locks
from nightjar.rules.errors import SettingsError
from nightjar.storage import lease
from nightjar.storage.lease import LostLeaseError, held
from nightjar.storage.objects import StorageError
from nightjar.storage.paths import checked, mirrored, names_in, whole
from tests.support.object_store import ObjectStore

pytestmark = pytest.mark.slow


def test_an_object_is_written_whole_and_found_by_its_folder(store: ObjectStore) -> None:
    folder = store.place("objects")
    assert not folder.exists()
    (folder / "a" / "1").write_text("one")
    (folder / "a" / "2").write_text("two")
    with whole(folder / "b.parquet") as partial:
        partial.write_bytes(b"three")
    assert sorted(names_in(folder)) == ["a", "b.parquet"]
    assert [each.name for each in (folder / "a").after("1")] == ["2"]
    assert ((folder / "a").is_dir(), (folder / "a").is_file(), (folder / "a" / "1").is_file()) == (True, False, True)
    assert (folder / "b.parquet").read_bytes() == b"three"
    (folder / "a").remove_tree()
    assert names_in(folder) == ["b.parquet"]
    (folder / "gone").unlink()
    (folder / "gone").remove_tree()
    with pytest.raises(FileNotFoundError):
        (folder / "gone").read_bytes()
    large = bytes(12_000_000)  # sent in parts
    (folder / "large").write_bytes(large)
    assert (folder / "large").read_bytes() == large


def test_of_all_that_create_an_object_one_succeeds(store: ObjectStore) -> None:
    place, created = store.place("created"), []
    tries = [threading.Thread(target=lambda: created.append(place.create(b"x"))) for _ in range(8)]
    for each in tries:
        each.start()
    for each in tries:
        each.join()
    assert sorted(created) == [False] * 7 + [True]


def test_a_mirror_brings_back_what_was_changed(store: ObjectStore) -> None:
    folder = store.place("mirrored")
    for name in ("kept", "sub/changed", "removed"):
        (folder / name).write_text(name)
    with mirrored(folder) as local:
        (local / "sub" / "changed").write_text("anew")
        (local / "removed").unlink()
        (local / "added").write_text("added")
    found = {each.relative_to(folder): each.read_text() for each in folder.rglob("*")}
    assert found == {"kept": "kept", "sub/changed": "anew", "added": "added"}


def test_a_wrong_secret_and_a_missing_bucket_are_named(store: ObjectStore, tmp_path: Path) -> None:
    """And no secret is."""
    wrong = store.new_secret()
    store.write_credentials(tmp_path / "wrong", wrong)
    with pytest.raises(StorageError, match="the object store denies access") as refused:
        store.place("x", credentials_file=str(tmp_path / "wrong")).read_bytes()
    assert wrong not in str(refused.value)
    missing = store.place("x", bucket="no-such-bucket")
    for asked in (lambda: missing.write_bytes(b"x"), lambda: names_in(missing)):
        with pytest.raises(StorageError, match="there is no such bucket or container") as refused:
            asked()
        assert str(missing) in str(refused.value)


def test_a_lease_has_one_holder_and_the_next_one_at_once(store: ObjectStore) -> None:
    """The second is refused by name while the first one lives, and has the next epoch after it."""
    folder = store.place("leased")
    with held(folder / "_lease") as first:
        first.check()
        with pytest.raises(locks.AlreadyRunningError, match=r"a job is already running on it \(process \d+ on "):
            locks.refuse_running(folder)
    with locks.sole_job(folder) as second:
        assert second is not None
        assert second.epoch == first.epoch + 1
        with pytest.raises(LostLeaseError, match="another process has taken over"):
            first.check()


def test_a_silent_holder_is_followed_and_fenced(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is on another host, so nobody can tell whether it is dead."""
    folder = store.place("silent")
    with held(folder) as first:
        claim = folder / "epochs" / first.name
        claim.write_text('{"host": "elsewhere", "process": 7}')
    (folder / "released" / first.name).unlink()
    monkeypatch.setattr(lease, "SILENCE_SECONDS", 1.0)
    with held(folder) as second:
        second.check()
        with pytest.raises(LostLeaseError):
            first.check()


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("lake", "lake"),
        ("/data/lake", "/data/lake"),
        ("file:///data/a%20lake", "/data/a lake"),
        ("s3a://bucket/lake/", "s3://bucket/lake"),
        ("S3://bucket/a/b", "s3://bucket/a/b"),
        ("gs://a_bucket/lake", "gs://a_bucket/lake"),
        ("abfss://files@account.dfs.core.windows.net/lake/", "abfss://files@account.dfs.core.windows.net/lake"),
    ],
)
def test_a_place_is_a_path_or_an_object_store(given: str, used: str) -> None:
    assert checked(given) == used


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("hdfs://namenode/lake", "has no conditional writes there, and delta-rs and Polars do not read it. Give s3://"),
        (
            "wasbs://files@account.blob.core.windows.net/lake",
            "wasbs: is not supported. Give s3://bucket/folder, abfss://",
        ),
        ("gs://bucket", "gs: URLs have the form gs://bucket/folder"),
        ("abfss://files@account/lake", "URLs have the form abfss://container@account.dfs.core.windows.net/folder"),
        ("abfss://account.dfs.core.windows.net/lake", "URLs have the form abfss://container@account"),
        ("s3://bucket", "s3: URLs have the form s3://bucket/folder"),
        ("s3://user:secret@bucket/lake", "s3: URLs have the form s3://bucket/folder"),
        ("file://host/lake", "file: URLs name no host"),
    ],
)
def test_another_scheme_is_refused_by_name(given: str, message: str) -> None:
    with pytest.raises(SettingsError, match="lake_dir") as refused:
        load_settings(lake_dir=given)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"secret_access_key": "hidden"}, "secrets are not taken here"),
        ({"endpoint": "localhost:9000"}, "is not a URL"),
        ({"regoin": "eu-west-1"}, "Did you mean region?"),
        ({"client_secret": "hidden"}, "secrets are not taken here"),
    ],
)
def test_storage_options_are_checked_and_hold_no_secret(options: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings(storage_options=options)
    assert message in str(refused.value)
    assert "hidden" not in str(refused.value)
