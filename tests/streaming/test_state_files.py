"""The files of a bucket's state: a batch starts from what was committed, whatever attempts have left."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nightjar.streaming.state.state_files import STATE_LOST, begin, files_of
from nightjar.streaming.state.statelog import NOTHING, Entry, Head


def head(version: int, *names: str, stale: tuple[str, ...] = ()) -> Head:
    """A head with these entries."""
    return Head(version, entries=tuple(Entry(name, 0, version, 1, 0) for name in names), stale=stale)


def names(folder: Path) -> set[str]:
    """The files of bucket 7."""
    return {file.name for file in (folder / "7").iterdir()}


def test_a_batch_starts_from_the_newest_head_before_it(tmp_path: Path) -> None:
    """Its own, of an attempt that failed, is not before it."""
    files = files_of(tmp_path, 7)
    assert files.before(5) == Head()
    assert files.before(5).version == NOTHING
    for version in (3, 9, 10):
        files.keep(head(version))
    assert [files.before(version).version for version in (3, 4, 10, 11)] == [NOTHING, 3, 9, 10]


def test_a_head_that_is_none_is_named(tmp_path: Path) -> None:
    """Half a file, as after a disk has lost its end."""
    files = files_of(tmp_path, 7)
    files.put("head-1", head(1, "1-a-0").to_bytes()[:-3])
    with pytest.raises(RuntimeError, match=f"{STATE_LOST}: .*7/head-1"):
        files.before(2)


def test_what_is_read_is_what_was_written_last(tmp_path: Path) -> None:
    """Heads whole, entries by their names; another attempt's head takes the place of the first's."""
    files = files_of(tmp_path, 7)
    files.put("1-a-0", b"one")
    files.keep(head(1, "1-a-0"))
    files.keep(again := head(1, "1-b-0", stale=("x",)))
    assert files.before(2) == again
    assert files.get("1-a-0") == b"one"
    name = files.put_new(b"rules")
    assert files.get(name) == b"rules"


def test_what_a_committed_head_has_no_more_goes(tmp_path: Path) -> None:
    """Not before: a batch that is done again needs it. Removing twice is no error."""
    files = files_of(tmp_path, 7)
    for name in ("1-a-0", "2-a-0"):
        files.put(name, b"")
    files.keep(head(1, "1-a-0"))
    files.keep(head(2, "2-a-0", stale=("1-a-0",)))
    assert "1-a-0" in names(tmp_path)
    for _ in range(2):
        files.remove_before(files.before(3))
    assert names(tmp_path) == {"2-a-0", "head-2"}


@pytest.mark.parametrize(
    ("committed", "left"),
    [(2, {"head-2-later", "2-a-0", "rules", "unread"}), (1, {"head-1-later"}), (None, set())],
)
def test_a_start_goes_back_to_what_was_committed(tmp_path: Path, committed: int | None, left: set[str]) -> None:
    """What attempts wrote that failed, half or whole, is not there afterwards."""
    begin(tmp_path, None, "earlier")
    files = files_of(tmp_path, 7, "earlier")
    for name in ("2-a-0", "2-b-0", "3-a-0", "rules", "unread", ".partial-12-3-a-1"):
        files.put(name, b"")
    files.keep(head(1))
    files.keep(Head(2, entries=head(2, "2-a-0").entries, rules="rules", unread=("unread",)))
    files.keep(head(3, "3-a-0"))
    begin(tmp_path, committed, "later")
    assert names(tmp_path) == left


def test_what_a_task_of_an_earlier_run_still_writes_is_nothing_to_a_run(tmp_path: Path) -> None:
    """Nor to those after it, whose committed batches may have its number."""
    begin(tmp_path, None, "first")
    lost = files_of(tmp_path, 7, "first")
    lost.keep(head(1))
    begin(tmp_path, 1, "second")
    lost.put("2-lost-0", b"")
    lost.keep(head(2, "2-lost-0"))
    assert files_of(tmp_path, 7, "second").before(9) == head(1)
    begin(tmp_path, 5, "third")
    lost.remove_before(head(2))
    assert files_of(tmp_path, 7, "third").before(9) == head(1)
    assert names(tmp_path) == {"head-1-third"}


def test_a_start_that_is_killed_half_way_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one finds what that one had found."""
    begin(tmp_path, None, "first")
    files_of(tmp_path, 7, "first").keep(head(1))
    files_of(tmp_path, 7, "first").keep(head(2))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", killed_at("run"))
        with pytest.raises(KeyboardInterrupt):
            begin(tmp_path, 1, "second")
    begin(tmp_path, 2, "third")
    assert files_of(tmp_path, 7, "third").before(9) == head(2)


def killed_at(name: str) -> Callable[[Path, Path], Path]:
    """Renaming, until a file is to get this name."""
    replace = Path.replace

    def stopped(file: Path, target: Path) -> Path:
        if Path(target).name == name:
            raise KeyboardInterrupt
        return replace(file, target)

    return stopped


def test_a_job_resumes_from_a_checkpoint_of_an_earlier_release(tmp_path: Path) -> None:
    """Its heads bear no name of a run."""
    files_of(tmp_path, 7).keep(head(4))
    begin(tmp_path, 4, "run")
    assert files_of(tmp_path, 7, "run").before(9) == head(4)
