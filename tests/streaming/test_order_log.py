"""The order log: groups in the order in which they were evaluated, also after a crash in the middle of a line."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from nightjar.rules.errors import NightjarError
from nightjar.streaming.state.order_log import Group, LoggedPositions, OrderLog

FIRST = Group("a", 17, {"transactions": {0: (0, 3), 1: (5, 6)}, "rule-status": {0: (2, 3)}})
SECOND = Group("a", 18, {"transactions": {0: (3, 9)}})
THIRD = Group("b", 19, {"logins": {0: (0, 1)}})


def write(folder: Path, *groups: Group, version: int = 1) -> Path:
    with OrderLog(folder, version) as log:
        for group in groups:
            log.append(group)
        log.sync()
    return folder / f"order-{version}"


def test_groups_are_read_in_order_with_the_run_that_evaluated_them(tmp_path: Path) -> None:
    write(tmp_path, FIRST, SECOND)
    with OrderLog(tmp_path, 1) as log:
        assert log.groups == (FIRST, SECOND)
        log.append(THIRD)
    with OrderLog(tmp_path, 1) as log:
        assert log.groups == (FIRST, SECOND, THIRD)


def test_a_torn_last_line_is_no_group_wherever_it_is_torn(tmp_path: Path) -> None:
    """Nothing of a group whose line is incomplete has left; the next line takes its place."""
    file = write(tmp_path, FIRST, SECOND)
    whole = file.read_bytes()
    begin = whole.rindex(b"\n", 0, -1) + 1
    for end in range(begin, len(whole)):
        file.write_bytes(whole[:end])
        with OrderLog(tmp_path, 1) as log:
            assert log.groups == (FIRST,)
            log.append(THIRD)
        with OrderLog(tmp_path, 1) as log:
            assert log.groups == (FIRST, THIRD)


def test_a_last_line_of_zeros_is_no_group(tmp_path: Path) -> None:
    """What a file system may show for a block that was never written."""
    file = write(tmp_path, FIRST)
    file.write_bytes(file.read_bytes() + bytes(80) + b"\n")
    with OrderLog(tmp_path, 1) as log:
        assert log.groups == (FIRST,)


def test_damage_before_the_last_line_is_an_error(tmp_path: Path) -> None:
    file = write(tmp_path, FIRST, SECOND)
    file.write_bytes(file.read_bytes().replace(b'"emitted_at":17', b'"emitted_at":71'))
    with pytest.raises(NightjarError, match="order log of the checkpoint is damaged"):
        OrderLog(tmp_path, 1)


def test_logs_of_earlier_batches_are_removed(tmp_path: Path) -> None:
    """Once it is known that they are committed."""
    first, second = write(tmp_path, FIRST), write(tmp_path, SECOND, version=2)
    assert {*tmp_path.iterdir()} == {first, second}
    with OrderLog(tmp_path, 2) as log:
        log.remove_earlier()
    assert [*tmp_path.iterdir()] == [second]


@pytest.mark.parametrize("taken_in", [0, 1, 2])
def test_a_batch_that_is_repeated_takes_in_what_was_logged_for_the_one_after_it(tmp_path: Path, taken_in: int) -> None:
    """Also if a crash had interrupted that."""
    write(tmp_path, FIRST, *(SECOND, THIRD)[:taken_in])
    write(tmp_path, SECOND, THIRD, version=2)
    for _ in range(2):
        with OrderLog(tmp_path, 1) as log:
            assert log.groups == (FIRST, SECOND, THIRD)
    assert not (tmp_path / "order-2").exists()


@pytest.mark.parametrize("looks", [True, False])
@pytest.mark.parametrize("longer", [1, 5])
def test_positions_follow_a_log_that_was_taken_in_and_begun_again(tmp_path: Path, *, looks: bool, longer: int) -> None:
    positions = LoggedPositions(tmp_path)
    write(tmp_path, FIRST)
    write(tmp_path, SECOND, version=2)
    assert positions.after(1)["transactions"] == {0: 9, 1: 6}
    write(tmp_path)
    if looks:
        assert positions.after(1)["transactions"] == {0: 9, 1: 6}
    write(tmp_path, *[THIRD] * longer, version=2)
    assert positions.after(1)["logins"] == {0: 1}
    write(tmp_path, replace(FIRST, ranges={"logins": {0: (1, 4)}}), version=2)
    assert positions.after(1)["logins"] == {0: 4}


def test_a_log_says_how_far_the_state_is_ahead_of_offsets(tmp_path: Path) -> None:
    """Of its own batch: if the one before is repeated, the state before that is not ahead."""
    ahead = {"transactions": {0: 7, 1: 9}}
    with OrderLog(tmp_path, 2) as log:
        log.begin_ahead(ahead)
        log.append(SECOND)
    with OrderLog(tmp_path, 2) as log:
        assert (log.ahead, log.groups) == (ahead, (SECOND,))
    assert LoggedPositions(tmp_path).after(2) == {"transactions": {0: 9, 1: 9}}
    with OrderLog(tmp_path, 1) as log:
        assert (log.ahead, log.groups) == ({}, (SECOND,))


def test_positions_follow_the_log(tmp_path: Path) -> None:
    positions = LoggedPositions(tmp_path)
    assert positions.after(1) == {}
    file = write(tmp_path, FIRST)
    assert positions.after(1) == {"transactions": {0: 3, 1: 6}, "rule-status": {0: 3}}
    whole = write(tmp_path, SECOND).read_bytes()
    file.write_bytes(whole[:-3])
    assert positions.after(1)["transactions"] == {0: 3, 1: 6}
    file.write_bytes(whole)
    assert positions.after(1)["transactions"] == {0: 9, 1: 6}
    assert positions.took(1) == 1
    write(tmp_path, THIRD, version=2)
    assert positions.after(1) == {"transactions": {0: 9, 1: 6}, "rule-status": {0: 3}, "logins": {0: 1}}
    assert positions.after(2) == {"logins": {0: 1}}
    assert positions.after(3) == {}


def test_the_time_that_a_job_was_down_does_not_count(tmp_path: Path) -> None:
    day = 86_400_000_000
    write(tmp_path, FIRST, replace(SECOND, emitted_at=17 + day), replace(THIRD, emitted_at=18 + day), FIRST)
    assert LoggedPositions(tmp_path).took(1) == 60_000_000 + 1


def test_a_full_disk_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of a group whose line is not whole must not leave."""
    with OrderLog(tmp_path, 1) as log:
        monkeypatch.setattr(os, "write", lambda _, lines: len(lines) - 1)
        with pytest.raises(OSError, match="is the disk full"):
            log.append(FIRST)
