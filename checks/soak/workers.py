"""The worker processes among which a check divides its work."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process


def workers(number: int) -> ProcessPoolExecutor:
    """So many processes with an interpreter of their own, which end with this one even if it is killed.

    Without that they would go on, as each of them holds the queue of work open for the others.
    """
    return ProcessPoolExecutor(number, get_context("spawn"), _watch_parent)


def _watch_parent() -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
