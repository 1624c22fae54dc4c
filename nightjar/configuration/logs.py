"""How the program logs: structured, on standard error; lines of text at a terminal, else one JSON object a line."""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from rules.errors import printable


class _StandardError:
    """Standard error as it is when a line is written: a program that hosts us may have put another in its place."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def configure(level: str) -> None:
    """Log what is at least of `level` (debug, info, warning, error)."""
    readable = sys.stderr.isatty()
    render = structlog.dev.ConsoleRenderer() if readable else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S.%f" if readable else "iso", utc=not readable),
            structlog.processors.format_exc_info,
            *([_neutralised] if readable else []),
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(_StandardError()),  # type: ignore[arg-type]
        cache_logger_on_first_use=True,
    )


def _neutralised(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Values hold what anybody sent: at a terminal, control characters are written out, as JSON does by itself."""
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = "\n".join(map(printable, value.split("\n"))) if name == "exception" else printable(value)
    return event
