"""How the program logs: structured, on standard error; lines of text at a terminal, else one JSON object a line."""

import logging
import sys

import structlog


def configure(level: str) -> None:
    """Log what is at least of `level` (debug, info, warning, error)."""
    readable = sys.stderr.isatty()
    render = structlog.dev.ConsoleRenderer() if readable else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S.%f" if readable else "iso", utc=not readable),
            *([] if readable else [structlog.processors.format_exc_info]),
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
