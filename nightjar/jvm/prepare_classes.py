"""Spark's classes, prepared by `make jars`: writes the archive that class_archive.py has later JVMs use."""

import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from nightjar.jvm.class_archive import archive_file
from nightjar.jvm.jars import PROJECT, JarsError

# A slow machine that compiles meanwhile; an ordinary one needs half a minute.
_AT_MOST_SECONDS = 600
_EXIT_SECONDS = 120


def make() -> None:
    """Write the archive unless it is there.

    Raises:
        JarsError: it could not be written; everything works without it.
    """
    file = archive_file()
    if file.is_file():
        return
    sys.stderr.write("==> preparing Spark's classes, for quicker starts (half a minute)\n")
    with tempfile.TemporaryDirectory(prefix=".classes-", dir=file.parent) as folder:
        made = Path(folder) / "classes.jsa"
        # nobody's settings: this is about classes
        environment = {name: value for name, value in os.environ.items() if not name.startswith("NIGHTJAR_")}
        try:
            done = subprocess.run(
                [sys.executable, "-m", "nightjar.jvm.prepare_classes", str(made)],
                cwd=folder, env=environment | {"PYTHONPATH": str(PROJECT)}, capture_output=True, text=True, check=False,
                timeout=_AT_MOST_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise JarsError("Spark's classes could not be prepared in time", remedy="Starts take longer") from None
        if not made.is_file():
            end = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
            raise JarsError(f"Spark's classes could not be prepared:\n{end}\n", remedy="Starts take longer")
        for old in file.parent.glob("classes-*.jsa"):
            old.unlink()
        made.rename(file)


def _load_and_write(file: Path) -> None:
    """Have one JVM load what the job and the lake need, and write the archive as it ends."""
    from lake.session import open_session
    from nightjar.configuration.job import job_config
    from nightjar.configuration.lake import lake_config
    from nightjar.configuration.settings import load_settings
    from nightjar.kafka import topics
    from nightjar.local.kafka import LocalKafka
    from rules.streams import load_streams
    from streaming.places import Places
    from streaming.warmup import warm_up

    streams = load_streams()
    with LocalKafka(load_settings(data_dir=Path.cwd(), kafka_port=0), short_lived=True) as broker:
        topics.ensure(broker.settings, streams.values())
        lake = lake_config(broker.settings, streams)
        session = open_session(replace(lake, java_options=(f"-XX:ArchiveClassesAtExit={file}", "-Xlog:cds=off")))
        gateway: Any = session.sparkContext._gateway  # noqa: SLF001  PySpark has no other way to the JVM's process
        config = replace(job_config(broker.settings, streams), warm_up_batches=2)
        warm_up(session, config, Places(session, config.shuffle_partitions))
        session.range(1).write.format("delta").save("table")
        session.read.format("delta").load("table").count()
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM ends with it
        gateway.proc.wait(_EXIT_SECONDS)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _load_and_write(Path(sys.argv[1]))
    else:
        try:
            make()
        except JarsError as error:
            sys.stderr.write(f"warning: {error}\n")
