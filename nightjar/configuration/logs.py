"""Configures structured logging to standard error: readable lines on a terminal, else one JSON object per line."""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from nightjar.rules.errors import printable


class _StandardError:
    """Writes to the current `sys.stderr`, which a host program may have replaced since logging was configured."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def configure(level: str) -> None:
    """Log messages of at least `level` (debug, info, warning, error)."""
    readable = sys.stderr.isatty()
    render = structlog.dev.ConsoleRenderer() if readable else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S.%f" if readable else "iso", utc=not readable),
            structlog.processors.format_exc_info,
            *([_escaped] if readable else []),
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(_StandardError()),  # type: ignore[arg-type]
        cache_logger_on_first_use=True,
    )


def _escaped(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escape control characters for the terminal, since values are untrusted; JSON output escapes them anyway."""
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = "\n".join(map(printable, value.split("\n"))) if name == "exception" else printable(value)
    return event
