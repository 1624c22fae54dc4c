"""The ground the demo stands on: a temporary folder, a broker and a job of its own, all gone at the end."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nightjar.settings import FILE_VARIABLE, PREFIX, Settings, load_settings

# Arrivals come from the replay, so that two days pass in a minute; the broker's port is any free one.
_SETTINGS = """
arrival = "producer"
kafka_port = 0
kafka_heap = "384m"
driver_memory = "1g"
buckets = 2
data_dir = "{folder}"
spark_master = "local[2]"
"""


@contextmanager
def own_settings() -> Iterator[Settings]:
    """Settings of a temporary data folder, in force in this process and those it starts, and never the user's.

    At the end the folder is removed and the environment is as before.
    """
    before = {name: value for name, value in os.environ.items() if name.startswith(PREFIX)}
    folder = Path(tempfile.mkdtemp(prefix="nightjar-demo-"))
    try:
        for name in before:
            del os.environ[name]
        file = folder / "nightjar.toml"
        file.write_text(_SETTINGS.format(folder=folder))
        os.environ[FILE_VARIABLE] = str(file)
        yield load_settings()
    finally:
        os.environ.pop(FILE_VARIABLE, None)
        os.environ.update(before)
        shutil.rmtree(folder, ignore_errors=True)
