"""The demo's isolated settings: a temporary folder and a free port, removed at the end."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from nightjar.configuration.settings import FILE_VARIABLE, PREFIX, Settings, load_settings

# Arrivals come from the replay, so that two days replay in about a minute; port 0 is any free port.
_SETTINGS: dict[str, str | int] = {
    "arrival": "producer",
    "kafka_port": 0,
    "kafka_heap": "384m",
    "driver_memory": "1g",
    "buckets": 2,
    "spark_master": "local[2,4]",
}


@contextmanager
def own_settings(*, declare: Callable[[Path], None] | None = None, **others: str | int) -> Iterator[Settings]:
    """Use settings with a temporary data folder instead of the user's, in this process and those it starts.

    declare: writes the streams' declarations to a file; None: the shipped ones. others: settings that override the
    demo's. At the end the folder is removed and the environment restored.
    """
    before = {name: value for name, value in os.environ.items() if name.startswith(PREFIX)}
    folder = Path(tempfile.mkdtemp(prefix="nightjar-demo-"))
    try:
        for name in before:
            del os.environ[name]
        file = folder / "nightjar.toml"
        values = {**_SETTINGS, "data_dir": str(folder), **others}
        if declare is not None:
            values["streams"] = str(folder / "streams.toml")
            declare(folder / "streams.toml")
        file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items()))
        os.environ[FILE_VARIABLE] = str(file)
        yield load_settings()
    finally:
        os.environ.pop(FILE_VARIABLE, None)
        os.environ.update(before)
        shutil.rmtree(folder, ignore_errors=True)
