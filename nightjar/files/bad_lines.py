"""Counts the lines of files that cannot be used, and refuses those beyond a limit."""

from collections.abc import Callable

from nightjar.files.errors import EventsError

EXAMPLES = 5


class BadLines:
    """The lines (of Parquet: rows) that were left out of what was read, of all files together.

    limit: how many are left out; with 0 the first is an error. count: how many were. examples: the first of them, as
    "file: line 7: why".
    """

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit
        self.count = 0
        self.examples: list[str] = []

    @property
    def room(self) -> int:
        """How many more are left out."""
        return self.limit - self.count

    def add(self, error: Callable[[], EventsError]) -> None:
        """Leave out a line. error: what is wrong with it, which is found only where it is shown.

        Raises:
            EventsError: the limit is passed.
        """
        if self.room <= 0:
            found = error()
            if not self.limit:
                raise found
            remedy = f"Only {self.limit:,} may be left out, by --max-bad-lines: is this a file of the stream's events?"
            raise EventsError(f"{found.what}. Too many lines are bad", where=found.where, remedy=remedy)
        self.count += 1
        if len(self.examples) < EXAMPLES:
            found = error()
            self.examples.append(f"{found.where}: {found.what}" if found.where else found.what)
