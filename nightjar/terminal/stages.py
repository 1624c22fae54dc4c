"""Prints the steps of a long command: announces each one and shows how long it took."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from threading import Event
from typing import Any

from nightjar.terminal.console import SafeConsole, line, progress_console


class Stages:
    """Announces stages on a console, by default standard error."""

    def __init__(self, console: SafeConsole | None = None) -> None:
        self.console = console or progress_console()

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Show a spinner during the block if the console is a terminal."""
        with self.console.status(f"    {text}") if self.console.is_terminal else nullcontext():
            yield

    @contextmanager
    def stage(self, title: str, does: str = "") -> Iterator[None]:
        """Announce what is about to happen, and print how long it took at the end."""
        self.announce(title, does)
        began = time.monotonic()
        yield
        self.console.print(line((f"    {time.monotonic() - began:.1f} s", "dim")))

    def announce(self, title: str, does: str = "") -> None:
        """Print the heading of a stage, or of something too short to time."""
        self.console.print(line((f"==> {title}", "bold"), (f"  {does}" if does else "", "dim")), soft_wrap=True)

    def note(self, text: str, style: str = "") -> None:
        """Print an indented line within a stage."""
        self.console.print(line((f"    {text}", style)), soft_wrap=True)


@cache
def announce_compiling() -> None:
    """From now on print a line to standard error, once, if the engine's kernels have to be compiled first."""
    from nightjar.rules.engine.compiled import on_compiling

    about = "compiling the engine for this machine, as after each installation and update: this takes a minute or two"
    on_compiling(lambda: progress_console().print(about))


@contextmanager
def _handled(handler: Callable[..., object]) -> Iterator[None]:
    """Have SIGTERM and Ctrl-C call the handler inside the block."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, handler) for number in numbers]
    try:
        yield
    finally:
        for number, handled in zip(numbers, before, strict=True):
            signal.signal(number, handled)


@contextmanager
def terminated_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C inside the block, so that everything started is stopped in order. Only the first of
    them interrupts: another one, while something is being stopped, would leave the rest running."""
    interrupted = False

    def interrupt(*_: Any) -> None:
        nonlocal interrupted
        if not interrupted:
            interrupted = True
            raise KeyboardInterrupt

    with _handled(interrupt):
        yield


@contextmanager
def stop_requested() -> Iterator[Event]:
    """An event that SIGTERM and Ctrl-C set inside the block, for what ends by itself once its work is whole."""
    stop = Event()
    with _handled(lambda *_: stop.set()):
        yield stop
