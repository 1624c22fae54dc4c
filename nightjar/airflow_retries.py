"""Which failures of a task Airflow should not try again: a verdict stays a verdict."""

import re

from airflow.sdk import RetryDecision, RetryPolicy

# As the Spark provider's hook ends a task; a program that found what it checked not to hold exits with 1.
_EXIT_CODE = re.compile(r"Error code is: (-?\d+)\b")
_DOES_NOT_HOLD = 1


class FinalVerdict(RetryPolicy):
    """For a task that checks pinned data: once it has said no, it says no again; anything else is tried again."""

    def evaluate(self, exception: BaseException, *_: object, **__: object) -> RetryDecision:
        """Fail at once where the program ran and what it checked did not hold."""
        found = _EXIT_CODE.search(str(exception))
        if found and int(found[1]) == _DOES_NOT_HOLD:
            return RetryDecision.fail("what it checked does not hold, and would not the next time")
        return RetryDecision.default()
