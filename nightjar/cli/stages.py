"""Doing things one after the other in front of a person: each is announced, and its duration shown."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from nightjar.cli.console import SafeConsole, line, progress_console


class Stages:
    """Announces stages on a console, standard error unless another is given."""

    def __init__(self, console: SafeConsole | None = None) -> None:
        self.console = console or progress_console()

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Show that something is going on, where a person looks on."""
        with self.console.status(f"    {text}") if self.console.is_terminal else nullcontext():
            yield

    @contextmanager
    def stage(self, title: str, does: str = "") -> Iterator[None]:
        """Announce what is about to happen, and at the end how long it took."""
        self.announce(title, does)
        began = time.monotonic()
        yield
        self.console.print(line((f"    {time.monotonic() - began:.1f} s", "dim")))

    def announce(self, title: str, does: str = "") -> None:
        """The heading of a stage, or of something that takes no time worth showing."""
        self.console.print(line((f"==> {title}", "bold"), (f"  {does}" if does else "", "dim")), soft_wrap=True)

    def say(self, text: str, style: str = "") -> None:
        """A line within a stage."""
        self.console.print(line((f"    {text}", style)), soft_wrap=True)


@contextmanager
def terminated_as_interrupt() -> Iterator[None]:
    """Inside the block SIGTERM is what Ctrl-C is, so that everything started is stopped in its turn."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
