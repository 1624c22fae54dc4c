"""Spark's classes, prepared: a JVM of ours takes them from the archive that `make jars` wrote."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from nightjar.jvm import class_archive
from nightjar.jvm.jars import PROJECT

_SESSION = """
import sys
from dataclasses import replace
from nightjar.lake.session import open_session
from nightjar.configuration.lake import lake_config
from nightjar.configuration.settings import load_settings
from nightjar.rules.streams import load_streams

config = lake_config(load_settings(), load_streams())
options = (*config.spark.java_options, f"-Xlog:class+load:file={sys.argv[1]}")
session = open_session(replace(config, spark=replace(config.spark, java_options=options)))
assert session.range(3).count() == 3
session.stop()
"""


@pytest.mark.spark
def test_sparks_classes_come_from_the_archive(tmp_path: Path) -> None:
    log = tmp_path / "classes.log"
    subprocess.run([sys.executable, "-c", _SESSION, str(log)], cwd=PROJECT, check=True, timeout=120)
    # the log names each class with its source; the source of a lambda is a class
    sources = re.findall(r"org\.apache\.spark\.\S+ source: (shared objects file \(top\)|file:)", log.read_text())
    read = sources.count("file:")
    assert len(sources) > 1000
    assert read < 0.1 * len(sources)


def test_without_an_archive_nothing_is_asked_of_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "jar_folder", lambda: tmp_path)
    assert class_archive.java_options() == ()
