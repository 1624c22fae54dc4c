"""Shows what a stage prints in the log of its Airflow task: in words, with its level, in lines that fit the page.

How it works: a stage prints one JSON object for each of its own messages, errors as `error: …` with indented lines
after it, and Spark's messages as they are. Each becomes one line, or several for a message with many values.

Nothing heavy is imported, because a task that waits for its stage imports this.
"""

import json
import logging
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Any

# Airflow shows about this many characters of a line on a screen of 1,400 px, beside the run's tasks.
WIDTH = 100

ERROR = "error: "
# Events of a stage that its task reads, too. SUMMARY: what became of a day; RULES: the ids of the published rules.
SUMMARY, RULES, STAGE_DONE = "summary", "rules", "a stage is done"
_SPARK = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (WARN|ERROR|INFO) ")
_SPARK_LEVELS = {"WARN": logging.WARNING, "ERROR": logging.ERROR, "INFO": logging.INFO}
_HIDDEN = frozenset({"event", "level", "timestamp", "exception", "traceback"})


class TaskLog:
    """Turns the lines of one stage into messages, in their order; it remembers that an error goes on."""

    def __init__(self) -> None:
        self._in_error = False

    def messages(self, line: str) -> Iterator[tuple[int, str]]:
        """Level (of `logging`) and text for each line to show."""
        found = message_of(line)
        if found is not None:
            self._in_error = False
            level = logging.getLevelNamesMapping().get(str(found.get("level", "info")).upper(), logging.INFO)
            for text in _texts(found):
                yield from ((level, part) for part in wrapped(text))
            return
        spark = _SPARK.match(line)
        self._in_error = line.startswith(ERROR) or (self._in_error and line[:1] == " ")
        if self._in_error:
            yield from ((logging.ERROR, part) for part in wrapped(line))
        else:
            yield (_SPARK_LEVELS[spark[1]] if spark else logging.INFO), line


def follow(log: Any) -> Callable[[str], None]:
    """A function that takes the lines of a program, and shows them in a task's log."""
    lines = TaskLog()

    def take(line: str) -> None:
        for level, text in lines.messages(line):
            log.log(level, text)

    return take


def message_of(line: str) -> dict[str, Any] | None:
    """The message that a line of a stage is; None if it is other text."""
    if not line.startswith("{"):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("event"), str) else None


def _texts(message: Mapping[str, Any]) -> Iterator[str]:
    event, values = message["event"], {name: value for name, value in message.items() if name not in _HIDDEN}
    if event == STAGE_DONE:
        values.pop("run", None)
        yield f"{values.pop('stage')} is done after {values.pop('seconds'):,} s"
        yield from _listed(values)
    elif any(map(_is_long, values.values())):
        yield event
        yield from _listed(values)
    else:
        yield f"{event}: {_pairs(values, _words)}" if values else event
    for name in ("exception", "traceback"):
        yield from str(message.get(name) or "").splitlines()


def _is_long(value: object) -> bool:
    """Whether a value gets lines of its own."""
    return isinstance(value, dict) or (isinstance(value, list) and len(_shown(value)) > WIDTH // 2)


def _listed(values: Mapping[str, Any]) -> Iterator[str]:
    """A line for all short values, and lines for each other. Only the names of fields are put into words: those below
    them are of rules, causes, tables."""
    if short := {name: value for name, value in values.items() if not _is_long(value)}:
        yield f"  {_pairs(short, _words)}"
    for name, value in values.items():
        if not _is_long(value):
            continue
        if isinstance(value, dict) and not any(isinstance(each, dict) for each in value.values()):
            yield f"  {_words(name)}: {_pairs(value) or 'none'}"
            continue
        yield f"  {_words(name)}:"
        for each in value.items() if isinstance(value, dict) else value:
            yield f"    {_entry(each)}"


def _entry(entry: object) -> str:
    match entry:
        case (key, dict() as values):
            return f"{key}: {_pairs(values)}"
        case dict() as values:
            return _pairs(values, _words)
        case (key, value):
            return f"{key}: {_shown(value)}"
    return _shown(entry)


def _pairs(values: Mapping[str, Any], words: Callable[[str], str] = str) -> str:
    return ", ".join(f"{words(name)} {_shown(value)}" for name, value in values.items())


def _words(name: str) -> str:
    return name.replace("_", " ")


def _shown(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,}"
    return (", ".join(map(_shown, value)) or "none") if isinstance(value, list) else str(value)


def wrapped(text: str) -> list[str]:
    """The text in lines of WIDTH; an address or a path is not divided. Further lines are indented."""
    indent = " " * (len(text) - len(text.lstrip()) + 2)
    return textwrap.wrap(
        text,
        WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
        replace_whitespace=False,
    ) or [text]
