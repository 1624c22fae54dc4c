"""Starts Spark's JVM and imports Great Expectations in the background, while other work proceeds.

The JVM takes five seconds to start, during which Python is idle. Importing Great Expectations takes five seconds on a
slow core, and only the quality gate needs it.
"""

import contextlib
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyspark.sql  # noqa: F401  before any thread, so that no two of them import it at once

from nightjar.lake.config import LakeConfig
from nightjar.lake.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start_session(config: LakeConfig) -> "Future[SparkSession]":
    """Start a session in a thread; the future has the session, or the exception that prevented it."""
    return ThreadPoolExecutor(1, "session").submit(open_session, config)


def import_gate() -> None:
    """Import the gate's libraries in a thread. If that fails, the gate itself will raise the error."""

    def fetch() -> None:
        with contextlib.suppress(Exception):
            from nightjar.expectations import library

            library.load()

    # A daemon, so that a program that ends early does not wait for it.
    threading.Thread(target=fetch, name="imports", daemon=True).start()
