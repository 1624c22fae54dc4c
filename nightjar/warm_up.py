"""What a backfill needs and waits for: Spark's JVM, and Great Expectations. Both are fetched beside other work.

A JVM takes five seconds to start, in which Python has nothing to do; importing Great Expectations takes eight seconds
of a slow core, and only the gate needs it.
"""

import contextlib
import threading

import pyspark.sql  # noqa: F401  before any thread, so that no two of them import it at once

from lake.config import LakeConfig
from lake.session import open_session


def start_session(config: LakeConfig) -> threading.Thread:
    """Start Spark in a thread that ends once it runs. Where it cannot be started, who opens the session is told."""

    def start() -> None:
        with contextlib.suppress(Exception):
            open_session(config)

    thread = threading.Thread(target=start, name="session", daemon=True)
    thread.start()
    return thread


def import_gate() -> threading.Thread:
    """Import what the gate takes, in a thread. Where it cannot be imported, the gate says why."""

    def fetch() -> None:
        with contextlib.suppress(Exception):
            import great_expectations  # noqa: F401

            import expectations.docs
            import expectations.rows  # noqa: F401

    thread = threading.Thread(target=fetch, name="imports", daemon=True)
    thread.start()
    return thread
