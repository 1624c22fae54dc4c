"""The folder of everything local belongs to its owner alone."""

from pathlib import Path

from structlog.testing import capture_logs

from nightjar.configuration.data_dir import prepare


def test_it_is_created_for_its_owner_only(tmp_path: Path) -> None:
    """Whatever the umask is; folders above it are left to that."""
    folder = tmp_path / "above" / "data"
    with capture_logs() as logged:
        prepare(folder)
        prepare(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert logged == []


def test_one_that_is_open_to_others_is_reported_and_left(tmp_path: Path) -> None:
    """Its mode may be meant."""
    tmp_path.chmod(0o755)
    with capture_logs() as logged:
        prepare(tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o755
    assert [(each["event"], each["mode"]) for each in logged] == [("data_dir_open_to_others", "755")]
