"""The process that Spark forks its Python workers from, and the engine processes come from, with all they import.

Importing the engine takes more than a second of processor time, and workers come and go: Spark lets an idle one go
after a minute. What is imported here is also exempt from garbage collection, which PySpark runs after every task.
Nothing is called before the fork that starts threads, as these would not survive it.
"""

import gc
import os
import socket

import numpy as np
from pyspark import daemon

import streaming.processor  # noqa: F401  all of the engine
from rules.engine.kernels.windows import lower_bounds
from streaming.engine_processes import fork_starter

_run = daemon.worker


def _worker(sock: socket.socket, authenticated: bool) -> int:
    """PySpark's own, but for the traceback that it prints where Spark has closed the connection, as when it ends."""
    try:
        return _run(sock, authenticated)
    except BrokenPipeError:
        os._exit(1)


def _call_numba() -> None:
    """Its first call in a process imports half of Numba, and takes half a second whatever the kernel."""
    nothing = np.zeros(1, np.int64)
    lower_bounds(nothing, nothing, nothing, nothing, 0, 0)


if __name__ == "__main__":
    _call_numba()
    gc.freeze()
    fork_starter()
    daemon.worker = _worker
    daemon.manager()
