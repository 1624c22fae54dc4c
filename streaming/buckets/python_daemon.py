"""The process that Spark's Python workers and the engine processes are forked from, with all that they import.

Importing the engine takes more than a second of processor time, and Spark stops an idle worker after a minute. What is
imported here is also exempt from garbage collection, which PySpark runs after every task. Nothing that starts threads
is called before the fork, as they would not survive it.
"""

import gc
import os
import socket

import numpy as np
from pyspark import daemon

import nightjar.streaming.buckets.processor  # noqa: F401  all of the engine
from nightjar.rules.engine.kernels.windows import lower_bounds
from nightjar.streaming.buckets.engine_processes import fork_starter

_run = daemon.worker


def _worker(sock: socket.socket, authenticated: bool) -> int:
    """PySpark's own, without the traceback that it prints when Spark closes the connection, as at its end."""
    try:
        return _run(sock, authenticated)
    except BrokenPipeError:
        os._exit(1)


def _call_numba() -> None:
    """The first call of a kernel in a process imports half of Numba, which takes half a second."""
    nothing = np.zeros(1, np.int64)
    lower_bounds(nothing, nothing, nothing, nothing, 0, 0, 0)


if __name__ == "__main__":
    _call_numba()
    gc.freeze()
    fork_starter()
    daemon.worker = _worker
    daemon.manager()
