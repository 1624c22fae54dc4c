"""Tables by folder."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lake import delta
from lake.tables import RULES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_folder_without_a_commit_is_no_table(tmp_path: Path) -> None:
    """As a crash leaves it, which made the first append after it a table without partitions."""
    log = tmp_path / RULES.name / "_delta_log"
    log.mkdir(parents=True)
    assert not delta.exists(tmp_path, RULES)
    (log / f"{0:020}.json").touch()
    assert delta.exists(tmp_path, RULES)


@pytest.mark.spark
def test_a_table_is_made_where_a_crash_left_its_folder(spark: "SparkSession", tmp_path: Path) -> None:
    """Delta refuses a log without a commit, so that no archive could begin there again."""
    (tmp_path / RULES.name / "_delta_log").mkdir(parents=True)
    delta.make(spark, tmp_path, RULES)
    assert delta.read(spark, tmp_path, RULES).count() == 0
