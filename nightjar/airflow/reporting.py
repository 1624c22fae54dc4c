"""Shows errors in the log of an Airflow task."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nightjar.airflow.submission import FormError
from nightjar.airflow.task_log import wrapped
from nightjar.rules.errors import NightjarError


@contextmanager
def reported(log: Any) -> Iterator[None]:
    """An error that has a remedy is in the log, a line each, before Airflow's own account of it.

    log: the task's. A form that cannot be used fails at once: no retry mends it.
    """
    from airflow.sdk.exceptions import AirflowFailException

    try:
        yield
    except NightjarError as error:
        for line in str(error).splitlines():
            for part in wrapped(line):
                log.error(part)
        if isinstance(error, FormError):
            raise AirflowFailException(str(error)) from None
        raise
