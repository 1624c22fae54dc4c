"""Checks that after nights in any order the alerts of random runs over several days are the truth.

    python -m checks.soak.nights [--runs 100] [--seed 1] [--workers 1]

Each run of the job is stretched over days (see tests/support/random_nights.py): late and early events around midnights,
rules as of the past, restarts with other settings, days that are run in any order, whole or in part, dry or killed, and
upkeep between. The same seed gives the same runs. Prints one JSON line at the end, preceded by one for each run that is
wrong; exits with 1 if there was one.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import time
import traceback
from collections import Counter

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import structlog

from checks.bench.figures import log_progress
from checks.soak.workers import workers
from tests.support.random_nights import RandomNights, drawn_nights
from tests.support.random_runs import Run, script

# So many runs are drawn together.
CHUNK = 5


def judged(job: tuple[int, int]) -> tuple[Counter[str], list[str]]:
    """What happened in so many runs of a number, and what is wrong, a line each."""
    number, count = job
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    counts, wrong = Counter[str](), list[str]()
    for run, seed in drawn_nights(number, count):
        counts["runs"] += 1
        complaints = _complaints(run, seed, counts)
        if complaints:
            counts["wrong"] += 1
            log_progress(script(run, complaints))
            wrong.append(json.dumps({"run": seed, "complaints": complaints}))
    return counts, wrong


def _complaints(run: Run, seed: int, counts: Counter[str]) -> list[str]:
    try:
        nights = RandomNights(run, seed)
    except Exception as failure:  # noqa: BLE001  whatever it is, a night could not take it
        return traceback.format_exception(failure)[-6:]
    counts.update(nights.counts)
    return nights.complaints


def main() -> None:
    """Run, and print; exit with 1 if anything is wrong."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--runs", type=int, default=100)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--workers", type=int, default=1)
    options = arguments.parse_args()
    jobs = [
        (options.seed * 1000 + at, min(CHUNK, options.runs - done))
        for at, done in enumerate(range(0, options.runs, CHUNK))
    ]
    begin, counts = time.perf_counter(), Counter[str]()
    with workers(options.workers) as pool:
        for found, wrong in pool.map(judged, jobs):
            counts.update(found)
            for line in wrong:
                print(line, flush=True)
            log_progress(f"{counts['runs']} of {options.runs} runs, {time.perf_counter() - begin:.0f} s")
    seconds = round(time.perf_counter() - begin, 1)
    print(json.dumps({**counts, "seconds": seconds, "seed": options.seed}), flush=True)
    raise SystemExit(1 if counts["wrong"] else 0)


if __name__ == "__main__":
    main()
