"""Doing things one after the other in front of a person: each is announced, and says how long it took."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from rich.console import Console


class Stages:
    """Announces stages on a console."""

    def __init__(self, console: Console) -> None:
        self.console = console

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Show that something is going on, where a person looks on."""
        with self.console.status(f"    {text}") if self.console.is_terminal else nullcontext():
            yield

    @contextmanager
    def stage(self, title: str, does: str = "") -> Iterator[None]:
        """Say what is about to happen, and at the end how long it took."""
        self.console.print(f"[bold]==> {title}[/]{f'  [dim]{does}[/]' if does else ''}", soft_wrap=True)
        began = time.monotonic()
        yield
        self.console.print(f"    [dim]{time.monotonic() - began:.1f} s[/]")

    def say(self, text: str) -> None:
        """A line within a stage."""
        self.console.print(f"    {text}", soft_wrap=True)


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
