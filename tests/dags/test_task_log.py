"""What a task's log shows of its stage: words, levels, lines that fit."""

import json
import logging

from nightjar.airflow.task_log import STAGE_DONE, WIDTH, TaskLog


def shown(*lines: str) -> list[tuple[str, str]]:
    """Level and text of each line of the log."""
    log = TaskLog()
    return [(logging.getLevelName(level), text) for line in lines for level, text in log.messages(line)]


def message(event: str, level: str = "info", **values: object) -> str:
    """A line as a stage prints it."""
    return json.dumps({**values, "event": event, "level": level, "timestamp": "2026-11-21T00:41:00Z"})


def test_a_stage_that_is_done_shows_its_counts_in_words() -> None:
    """Numbers with separators; a line for each group; names of rules and causes as they are."""
    counts = {"stream_alerts": 1234, "outcomes": {"matched": 1230}, "causes": {"late_event": 4}, "severities": {}}
    done = message(STAGE_DONE, stage="reconcile", run="r", seconds=3.25, **counts)
    assert shown(done) == [
        ("INFO", "reconcile is done after 3.25 s"),
        ("INFO", "  stream alerts 1,234"),
        ("INFO", "  outcomes: matched 1,230"),
        ("INFO", "  causes: late_event 4"),
        ("INFO", "  severities: none"),
    ]


def test_short_messages_are_a_line_and_nested_ones_several() -> None:
    """Such as the differences by rule, and alerts that differ."""
    assert shown(message("checked", suite="violations", broken=[], seconds=0.1)) == [
        ("INFO", "checked: suite violations, broken none, seconds 0.1")
    ]
    nested = {
        "by_rule": {"far_away": {"missed (late_event)": 3}},
        "alerts": [f"{'a' * 32} of far_away version 2: missed"] * 2,
    }
    assert [text for _, text in shown(message("differences", **nested))] == [
        "differences",
        "  by rule:",
        "    far_away: missed (late_event) 3",
        "  alerts:",
        *[f"    {'a' * 32} of far_away version 2: missed"] * 2,
    ]


def test_levels_are_kept() -> None:
    """Of our messages, of errors with their indented lines, and of Spark's."""
    lines = [
        message("a day is pending", "warning"),
        "error: 1 expectation does not hold",
        "  - row 1",
        "  - row 2",
        "something else",
        "26/11/21 00:41:00 WARN TaskSetManager: Lost task",
        "26/11/21 00:41:00 ERROR Executor: gone",
        message("the stage crashed", "error", stage="gate", traceback="Traceback\n  File x"),
    ]
    assert [level for level, _ in shown(*lines)] == [
        "WARNING",
        "ERROR",
        "ERROR",
        "ERROR",
        "INFO",
        "WARNING",
        "ERROR",
        "ERROR",
        "ERROR",
        "ERROR",
    ]
    assert shown(*lines)[-1] == ("ERROR", "  File x")


def test_long_lines_are_divided_between_words_and_no_address_is() -> None:
    """The page of Airflow cuts what is longer."""
    address = "http://airflow.example/" + "a" * 200
    lines = [text for _, text in shown("error: " + "word " * 100, message("see " + address))]
    assert all(len(line) <= WIDTH or line.strip() == address for line in lines)
    assert [line for line in lines if address in line], "it can be followed"
    assert " ".join(" ".join(lines[:-1]).split()).startswith("error: word word")


def test_what_only_looks_like_a_message_is_text() -> None:
    """An event may hold anything."""
    for line in ("{", '{"event": 5}', "{}", '["event"]', "{not json}"):
        assert shown(line) == [("INFO", line)]
