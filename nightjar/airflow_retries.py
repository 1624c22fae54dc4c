"""Which failures of a task Airflow should not try again: a verdict stays a verdict."""

import re

from airflow.sdk import RetryDecision, RetryPolicy

from nightjar.submission import VERDICT

# As the Spark provider's hook ends a task.
_EXIT_CODE = re.compile(r"Error code is: (-?\d+)\b")


class FinalVerdict(RetryPolicy):
    """What a stage refuses it refuses again, until somebody has looked; anything else is tried again."""

    def evaluate(self, exception: BaseException, *_: object, **__: object) -> RetryDecision:
        """Fail at once where the program ran to its end and refused."""
        found = _EXIT_CODE.search(str(exception))
        if found and int(found[1]) == VERDICT:
            return RetryDecision.fail("what it checked does not hold, and would not the next time")
        return RetryDecision.default()
