"""What a program with Spark writes to its standard error beside its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from nightjar.ingestion.session import common_settings
from nightjar.ingestion.spark_config import SparkConfig

PROGRAM = """
import sys
from pathlib import Path
from nightjar.ingestion.session import common_settings, started
from nightjar.ingestion.spark_config import SparkConfig
from nightjar.rules.errors import NightjarError

folder = Path(sys.argv[1])
session = started(common_settings(SparkConfig("local[1]", "512m"), folder), folder, "quiet", NightjarError)
print(session.range(3).count())
session.stop()
"""


@pytest.mark.spark
def test_it_writes_nothing_where_nothing_is_wrong(tmp_path: Path) -> None:
    """No profile that is used, no host name, no library that is missing, no module that only Spark ML would use."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=True, timeout=120
    )
    assert ran.stdout == "3\n"
    assert ran.stderr == ""


def test_the_users_own_logging_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log4j2.properties in the folder of Spark's configuration; without one, ours."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    config = SparkConfig("local[1]", "512m")
    assert "ingestion/log4j2.properties" in common_settings(config, tmp_path)["spark.driver.extraJavaOptions"]
    (tmp_path / "log4j2.properties").touch()
    assert "log4j2" not in common_settings(config, tmp_path)["spark.driver.extraJavaOptions"]
