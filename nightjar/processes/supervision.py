"""Starts a program again when it dies, later each time, gives up on one that cannot stay up, and bounds its log."""

import time
from collections.abc import Callable

from nightjar.processes.process import ManagedProcess
from nightjar.rules.errors import NightjarError

# Seconds before the first start again, and at most; each is twice the one before.
_FIRST_DELAY = 1.0
_LONGEST_DELAY = 60.0
# A program that has run for so long (seconds) did start: its next death is a new one.
_STEADY = 120.0
_MOST_TRIES = 6
_REST_SECONDS = 10.0
# A month of an ordinary job's lines; there is one older file of this size.
_LONGEST_LOG = 50_000_000


def keep_running(program: ManagedProcess, say: Callable[[str], object], check: Callable[[], object]) -> None:
    """Start a running program again whenever it exits. Returns never; an interrupt ends it.

    say: gets a line about each exit. check: raises if what the program depends on is gone.

    Raises:
        NightjarError: it has exited six times within two minutes of its start; or what `check` raises.
    """
    tries = 0
    while True:
        began = time.monotonic()
        while not program.wait(1.0):
            program.rotate_log(_LONGEST_LOG)
        check()
        tries = 1 if time.monotonic() - began > _STEADY else tries + 1
        try:
            program.check()
        except NightjarError as failure:
            if tries == _MOST_TRIES:
                raise
            delay = min(_FIRST_DELAY * 2 ** (tries - 1), _LONGEST_DELAY)
            say(f"{failure.what}It starts again in {delay:.0f} s.")
            time.sleep(delay)
        program.stop(_REST_SECONDS)  # what it has left behind, such as its JVM
        program.start()
