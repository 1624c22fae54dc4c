"""Which failures of a task Airflow should not try again: a verdict stays a verdict."""

from airflow.sdk import RetryDecision, RetryPolicy

from nightjar.airflow.stage_client import StageFailedError
from nightjar.airflow.submission import VERDICT


class FinalVerdict(RetryPolicy):
    """What a stage refuses it refuses again, until somebody has looked; anything else is tried again."""

    def evaluate(self, exception: BaseException, *_: object, **__: object) -> RetryDecision:
        """Fail at once where the program ran to its end and refused."""
        if isinstance(exception, StageFailedError) and exception.code == VERDICT:
            return RetryDecision.fail("what it checked does not hold, and would not the next time")
        return RetryDecision.default()
