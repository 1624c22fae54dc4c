"""Writes the class archive of class_archive.py; `make jars` runs it."""

import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from nightjar.jvm.class_archive import archive_file
from nightjar.jvm.jars import PROJECT, JarsError

# Enough for a slow and busy machine; an ordinary one needs a minute or two, as it also compiles the engine's kernels.
_AT_MOST_SECONDS = 600
_EXIT_SECONDS = 120


def make() -> None:
    """Write the archive unless it exists.

    Raises:
        JarsError: it could not be written. Everything works without it, only starts are slower.
    """
    file = archive_file()
    if file.is_file():
        return
    sys.stderr.write("==> compiling the engine, archiving Spark's classes for faster starts (a minute or two)\n")
    with tempfile.TemporaryDirectory(prefix=".classes-", dir=file.parent) as folder:
        made = Path(folder) / "classes.jsa"
        # The user's settings do not matter here and must not interfere.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("NIGHTJAR_")}
        try:
            done = subprocess.run(
                [sys.executable, "-m", "nightjar.operations.prepare_classes", str(made)],
                cwd=folder,
                env=environment | {"PYTHONPATH": str(PROJECT)},
                capture_output=True,
                text=True,
                check=False,
                timeout=_AT_MOST_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise JarsError(
                "the archive of Spark's classes was not written in time",
                remedy="Nothing to do: everything works without it, only starts are slower",
            ) from None
        if not made.is_file():
            end = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
            raise JarsError(
                f"the archive of Spark's classes could not be written:\n{end}\n",
                remedy="Nothing to do: everything works without it, only starts are slower",
            )
        for old in file.parent.glob("classes-*.jsa"):
            old.unlink()
        made.rename(file)


def _load_and_write(file: Path) -> None:
    """Make one JVM load the classes that the job and the lake need; it writes the archive when it exits."""
    from nightjar.configuration.job import job_config
    from nightjar.configuration.lake import lake_config
    from nightjar.configuration.settings import load_settings
    from nightjar.kafka import topics
    from nightjar.lake.session import open_session
    from nightjar.local.kafka import LocalKafka
    from nightjar.rules.streams import load_streams
    from nightjar.streaming import kafka_clients
    from nightjar.streaming.driver.places import Places
    from nightjar.streaming.driver.warmup import warm_up

    streams = load_streams()
    with LocalKafka(load_settings(data_dir=Path.cwd(), kafka_port=0), short_lived=True) as broker:
        topics.ensure(broker.settings, streams.values())
        lake = lake_config(broker.settings, streams)
        options = (f"-XX:ArchiveClassesAtExit={file}", "-Xlog:cds=off")
        session = open_session(replace(lake, spark=replace(lake.spark, java_options=options)))
        gateway: Any = session.sparkContext._gateway  # noqa: SLF001  PySpark has no other way to the JVM's process
        config = replace(job_config(broker.settings, streams), warm_up_batches=2)
        with kafka_clients.consumer(config) as consumer:
            warm_up(session, config, Places(session, config.shuffle_partitions), consumer)
        session.range(1).write.format("delta").save("table")
        session.read.format("delta").load("table").count()
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # makes the JVM exit
        gateway.proc.wait(_EXIT_SECONDS)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _load_and_write(Path(sys.argv[1]))
    else:
        try:
            make()
        except JarsError as error:
            sys.stderr.write(f"warning: {error}\n")
