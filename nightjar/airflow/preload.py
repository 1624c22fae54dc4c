"""What a backfill needs and waits for: Spark's JVM, and Great Expectations. Both are fetched beside other work.

A JVM takes five seconds to start, in which Python has nothing to do; importing Great Expectations takes five seconds
of a slow core, and only the gate needs it.
"""

import contextlib
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyspark.sql  # noqa: F401  before any thread, so that no two of them import it at once

from lake.config import LakeConfig
from lake.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start_session(config: LakeConfig) -> "Future[SparkSession]":
    """The session, or why it could not be started, once that is known."""
    return ThreadPoolExecutor(1, "session").submit(open_session, config)


def import_gate() -> None:
    """Import what the gate takes, in a thread. Where it cannot be imported, the gate says why."""

    def fetch() -> None:
        with contextlib.suppress(Exception):
            from expectations import library

            library.bring()

    # a daemon: a program that ends early does not wait for it
    threading.Thread(target=fetch, name="imports", daemon=True).start()
