"""Checks that stream, batch, a slow reference evaluator and SQL agree on random histories: streams, rules, events.

    python -m checks.soak.truth [--histories 1000] [--seed 1] [--workers 1] [--large | --real-time]

Each history has its own stream, rules with all measures and options that change while events arrive, in a third of them
a table whose rows change too, out-of-order, late and duplicate events, NULLs, equal times, numbers near their limits,
crashes, and random batches. Every other history is a case whose stream, batch, SQL and reference results must agree
(random_cases.py and agreement.py in tests/support). The others are runs of the job over one stream or two: with
unevenly read partitions, clock records, restarts with other settings, and rules that arrive while the job is behind or
down, in half of them also shuffle keys that are made, dropped and made again, in half of them also rules that wait for
history and are primed (random_runs.py there). At each step the operator must emit what an oracle allows (oracle.py),
and the backfill must correct and explain every difference (run_agreement.py); of every fourth of them alerts are
explained from a lake, as `nightjar explain` does it, and must be what was published.

With --real-time all are runs of the job, in groups of batches that last, with crashes between them (group_host.py).

With --large they are histories of 10,000 to 100,000 events instead, with hot groups, on engines whose thresholds (when
blocks are released, windows carried, arrays moved) are drawn too: the stream must end at the truth, where nothing is
late (large_histories.py).

The same code and seed give the same histories with any number of workers. Prints one JSON line at the end, preceded by
one per difference. Then the smallest history that still shows the difference is written to standard error, as a case
file for `nightjar simulate` if a case can express it, else as a Python program, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import duckdb
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings

from checks.bench.figures import log_progress
from checks.soak.workers import workers
from nightjar.cases import check, read_case
from nightjar.cases.simulate import simulate
from nightjar.rules.errors import NightjarError
from tests.support.agreement import Agreement
from tests.support.group_host import GroupHost
from tests.support.large_histories import LargeHistory, differences, large_histories
from tests.support.random_cases import History, case_file, histories
from tests.support.random_runs import STREAMS, Run, as_history, runs, script
from tests.support.rules_in_sql import connect
from tests.support.run_agreement import RunAgreement
from tests.support.stream_host import StreamHost

# So many come of one seed: a difference ends the chunk that it is in.
CHUNK = 250
LARGE_CHUNK = 10
# The events that a large history has at most.
MOST = 100_000
# Kinds of histories; others have none.
LARGE, REAL_TIME = "large", "real-time"
# Of so many alerts of every fourth run the explanation is compared.
_EXPLAINED = 3

AnyHistory = History | Run | LargeHistory


@dataclass
class Chunk:
    """What came of some histories. found: the lines of the smallest history that differs, and its case file."""

    counts: Counter[str] = field(default_factory=Counter)
    digest: str = ""
    found: tuple[list[str], str] | None = None


def compared(job: tuple[int, int, str]) -> Chunk:
    """Compare so many histories of a seed: large ones, runs in real time, or else of odd seeds runs of the job."""
    number, examples, kind = job
    drawn = {LARGE: large_histories(MOST), REAL_TIME: runs(), "": runs() if number % 2 else histories()}[kind]
    chunk, digest, connection = Chunk(), hashlib.blake2b(digest_size=8), connect()

    @seed(number)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=[*HealthCheck],
        verbosity=Verbosity.quiet,
        report_multiple_bugs=False,
    )
    @given(drawn)
    def agree(history: AnyHistory) -> None:
        try:
            counts, found = _compared(history, connection, GroupHost if kind == REAL_TIME else StreamHost)
        except Exception as failure:  # noqa: BLE001  whatever it is, somebody could not take the history
            counts, found = Counter(), traceback.format_exception(failure)[-6:]
        if chunk.found is None:
            chunk.counts.update(counts, histories=1)
            digest.update(_named(history).encode())
        if found:
            chunk.found = found, _written(history, "".join(found).splitlines())
            raise AssertionError("they differ")

    try:
        agree()
    except AssertionError:
        if chunk.found is None:
            raise
    chunk.digest = digest.hexdigest()
    return chunk


def _named(history: AnyHistory) -> str:
    """What tells the history from others."""
    if isinstance(history, LargeHistory):
        return repr(history)
    return repr(history.case.steps if isinstance(history, History) else [*map(history.events_of, STREAMS)])


def _compared(
    history: AnyHistory, connection: duckdb.DuckDBPyConnection, host: type[StreamHost]
) -> tuple[Counter[str], list[str]]:
    """What has been compared, and the differences, a line each."""
    if isinstance(history, LargeHistory):
        return Counter(events=history.events), [f"{line}\n" for line in differences(history)]
    if isinstance(history, Run):
        explained = _EXPLAINED if len(history.events) % 4 == 0 else 0  # which takes a lake of the run's own
        judged = RunAgreement(history, explained, host)
        return judged.counts, [f"{line}\n" for line in judged.complaints]
    agreement = Agreement(history, connection)
    return agreement.counts, agreement.differences


def _written(history: AnyHistory, differences: list[str]) -> str:
    """The history as a case file if that reproduces the difference, else as a program; a large one as drawn."""
    if isinstance(history, LargeHistory):
        return repr(history)
    if isinstance(history, History):
        return case_file(history, differences)
    case = as_history(history)
    if case is not None:
        text = case_file(case, differences)
        try:
            read = read_case(text, "case.yaml")
            if [*check(read.expect, simulate(read))]:
                return text
        except NightjarError:
            pass
    return script(history, differences)


def main() -> None:
    """Compare, and print; exit with 1 if anything differs."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--histories", type=int, default=1000)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--workers", type=int, default=1)
    kinds = arguments.add_mutually_exclusive_group()
    for kind in (LARGE, REAL_TIME):
        kinds.add_argument(f"--{kind}", action="store_const", const=kind, default="", dest="kind")
    options = arguments.parse_args()
    at_once = LARGE_CHUNK if options.kind == LARGE else CHUNK
    sizes = [min(at_once, options.histories - done) for done in range(0, options.histories, at_once)]
    jobs = [(options.seed * 1_000_000 + number, size, options.kind) for number, size in enumerate(sizes)]
    start = time.perf_counter()
    counts: Counter[str] = Counter()
    digest, differing = hashlib.blake2b(digest_size=8), 0
    with workers(options.workers) as pool:
        for chunk in pool.map(compared, jobs):
            counts.update(chunk.counts)
            digest.update(chunk.digest.encode())
            log_progress(f"{counts['histories']} of {options.histories} histories, {time.perf_counter() - start:.0f} s")
            if chunk.found is not None:
                differing += 1
                lines, text = chunk.found
                print(json.dumps({"difference": lines}), flush=True)
                log_progress(text)
    seconds = round(time.perf_counter() - start, 1)
    total = {**counts, "differences": differing, "seconds": seconds, "seed": options.seed}
    print(json.dumps({**total, "digest": digest.hexdigest()}), flush=True)
    raise SystemExit(1 if differing else 0)


if __name__ == "__main__":
    main()
