"""Airflow's retry policy: a stage that failed its checks is not retried."""

from airflow.sdk import RetryDecision, RetryPolicy

from nightjar.airflow.stage_client import StageFailedError
from nightjar.airflow.submission import VERDICT


class FinalVerdict(RetryPolicy):
    """Do not retry a stage whose checks failed: it would fail again until somebody acts. Retry all other failures."""

    def evaluate(self, exception: BaseException, *_: object, **__: object) -> RetryDecision:
        """Fail without a retry if the stage ran to its end and its checks failed."""
        if isinstance(exception, StageFailedError) and exception.code == VERDICT:
            return RetryDecision.fail("a check failed, and would fail again")
        return RetryDecision.default()
