"""The error of files of events."""

from nightjar.rules.errors import NightjarError


class EventsError(NightjarError):
    """A file of events cannot be read, or does not match its stream's declaration."""


def first_line(error: Exception) -> str:
    """What a library's error says, without its further lines."""
    return (str(error) or type(error).__name__).splitlines()[0]
