"""The process that Spark forks its Python workers from, with the engine imported once and for all of them.

Importing it takes a worker more than a second of processor time, and workers come and go: Spark lets an idle one go
after a minute. What is imported here is also exempt from garbage collection, which PySpark runs after every task.
Nothing is called before the fork: threads would not survive it.
"""

import gc

from pyspark.daemon import manager

import rules.truth  # noqa: F401  all of the engine

if __name__ == "__main__":
    gc.freeze()
    manager()
