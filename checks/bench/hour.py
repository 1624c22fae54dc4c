"""Measures whether alerts in real time are as fast after an hour as they were in the beginning.

    python -m checks.bench.hour [--minutes 60] [--window 10] [--after 2] [--rate 1000]

Events and alerts are those of checks/bench/latency.py. The last minutes are compared with the first ones of the same
run, after a warm-up.
"""

from __future__ import annotations

import argparse

import numpy as np

from checks.bench.batch_ends import SUBJECT, latencies
from checks.bench.figures import emit, log_progress

# As good as equal on a machine that others share.
GOAL = 1.2


def main() -> None:
    """Run once and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60, help="how long events are sent")
    parser.add_argument("--window", type=float, default=10, help="minutes that are compared")
    parser.add_argument("--after", type=float, default=2, help="from which minute on alerts count")
    parser.add_argument("--rate", type=int, default=1000, help="events per second")
    options = parser.parse_args()
    sent, found = np.array(latencies(SUBJECT, options.rate, 60 * options.minutes, 1)).T
    windows: list[np.ndarray] = []
    for begin in np.arange(options.after, options.minutes - options.window + 0.01, options.window):
        windows.append(found[(sent >= 60 * begin) & (sent < 60 * (begin + options.window))])
        p50, p99, most = np.percentile(windows[-1], [50, 99, 100])
        log_progress(f"from minute {begin:g}: {len(windows[-1])} alerts, {p50:.0f} / {p99:.0f} ms, at most {most:.0f}")
    met = True
    for percentile in (50, 99):
        last, first = (float(np.percentile(of, percentile)) for of in (windows[-1], windows[0]))
        name = f"latency p{percentile} at {options.rate}/s in real time, after {options.minutes:g} minutes"
        met &= emit(name, "ms", [last], f"the same run from minute {options.after:g} on", [first], goal=GOAL)
    if not met:
        raise SystemExit("a goal is missed")


if __name__ == "__main__":
    main()
