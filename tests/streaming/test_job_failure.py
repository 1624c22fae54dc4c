"""How a failed query is told."""

from streaming.job import told_failure

PYTHON = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
ValueError: no such column
 SQLSTATE: 38000
=== Streaming Query ===
Identifier: nightjar
Logical Plan: a very long one"""


def test_cause_of_a_failed_worker_is_its_last_line() -> None:
    """The plan is left out, and the cause is the exception's own line."""
    detail, cause = told_failure(PYTHON)
    assert cause == "ValueError: no such column"
    assert "Logical Plan" not in detail


def test_cause_of_another_failure_is_its_first_line() -> None:
    """Spark's and Kafka's own failures say first what is wrong."""
    assert told_failure("Topic gone\nat java.lang.Thread\n=== Streaming Query ===\n")[1] == "Topic gone"
