"""Shows errors in the log of an Airflow task."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rules.errors import NightjarError


@contextmanager
def reported(log: Callable[[str], object]) -> Iterator[None]:
    """An error that has a remedy is a line of the log, too, before Airflow's own account of it."""
    try:
        yield
    except NightjarError as error:
        log(str(error))
        raise
