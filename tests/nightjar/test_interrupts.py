"""Ctrl-C and SIGTERM, where a command stops what it has started."""

import signal

import pytest

from nightjar.terminal.stages import terminated_as_interrupt


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_who_asks_twice_does_not_interrupt_what_is_being_stopped(first: signal.Signals) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    stopped = []

    def run() -> None:
        with terminated_as_interrupt():
            try:
                signal.raise_signal(first)
            finally:
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGTERM)
                stopped.append("all of it")

    with pytest.raises(KeyboardInterrupt):
        run()
    assert stopped
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
