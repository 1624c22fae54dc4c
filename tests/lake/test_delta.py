"""Tables by folder."""

from pathlib import Path

from lake import delta
from lake.tables import RULES


def test_a_folder_without_a_commit_is_no_table(tmp_path: Path) -> None:
    """As a crash leaves it, which made the first append after it a table without partitions."""
    log = tmp_path / RULES.name / "_delta_log"
    log.mkdir(parents=True)
    assert not delta.exists(tmp_path, RULES)
    (log / f"{0:020}.json").touch()
    assert delta.exists(tmp_path, RULES)
