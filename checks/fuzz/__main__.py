"""Fuzzes nightjar with hostile records and rules, reproducible from a seed.

    python -m checks.fuzz events [--records 1000000] [--job-records 100000] [--seed 1]
    python -m checks.fuzz topics [--records 100000] [--seed 1]
    python -m checks.fuzz rules [--rules 10000] [--seed 1]

events: the parse by columns and the one by one must agree on every record, of JSON, Avro, Protobuf, CloudEvents and
Debezium's changes; and a real job on a real Kafka, with
hostile messages on its other topics too, must account for every record, stay within its memory limit, and produce a
lake with every offset. topics: hostile records on all topics that nightjar itself writes; the job, every command that
reads them, a backfill and a rebuild must ignore and count them. rules: every text must be accepted, or rejected with a
place and a remedy, within a time limit; accepted rules must evaluate. Without arguments: all modes at a small size.
Prints one JSON line per mode; exits with 1 if anything is wrong, after printing what.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from checks.bench.figures import log_progress
from checks.fuzz.formats import formats_agreement
from checks.fuzz.hostile_rules import HostileRules
from checks.fuzz.job import on_the_job
from checks.fuzz.parsing import Findings, agreement, streams
from checks.fuzz.rules import Examiner
from checks.fuzz.topics import on_the_topics

# Resident memory (MB) that reading and evaluating any number of rules may take, beyond the memory at the start.
_RULES_MEMORY = 500


def events(options: argparse.Namespace, findings: Findings) -> Iterator[dict[str, Any]]:
    """The mode `events`."""
    if options.records:
        yield agreement(options.records, options.seed, findings)
        yield from formats_agreement(options.records, options.seed, findings)
    if options.job_records:
        with tempfile.TemporaryDirectory(prefix="nightjar-fuzz-") as folder:
            yield from on_the_job(options.job_records, options.seed, Path(folder), findings)


def topics(options: argparse.Namespace, findings: Findings) -> Iterator[dict[str, Any]]:
    """The mode `topics`."""
    with tempfile.TemporaryDirectory(prefix="nightjar-fuzz-") as folder:
        yield from on_the_topics(options.topic_records, options.seed, Path(folder), findings)


def rules(options: argparse.Namespace, findings: Findings) -> Iterator[dict[str, Any]]:
    """The mode `rules`."""
    declared = streams()
    verdicts: Counter[str] = Counter()
    longest = 0.0
    with tempfile.TemporaryDirectory(prefix="nightjar-fuzz-") as folder:
        examiner = Examiner(declared, Path(folder) / "rules.yaml")
        source = HostileRules(declared, random.Random(options.seed))
        began, before = time.monotonic(), _resident()
        for number in range(1, options.rules + 1):
            hostile = source.text()
            examined = examiner.examine(hostile.text)
            verdicts[examined.verdict] += 1
            longest = max(longest, examined.longest)
            for wrong in [*examined.wrong, *examined.slow]:
                findings.add(wrong[:60], (wrong, hostile.what, hostile.text[:1000]))
            if number % 1000 == 0:
                log_progress(f"{number:,} rules examined after {time.monotonic() - began:.0f} s")
    grown = _resident() - before
    if grown > _RULES_MEMORY:
        findings.add("memory of rules", f"{grown} MB more than at the start")
    yield {
        "name": "hostile rules",
        "rules": options.rules,
        "seed": options.seed,
        **verdicts,
        "longest_s": round(longest, 2),
        "grown_mb": grown,
        "seconds": round(time.monotonic() - began, 1),
    }


def _resident() -> int:
    return int(psutil.Process().memory_info().rss) // 1_000_000


def main() -> None:
    """Run the mode; exit with 1 if a defect is found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.set_defaults(mode=None, records=100_000, job_records=20_000, topic_records=20_000, rules=2000, seed=1)
    modes = parser.add_subparsers(dest="mode")
    of_events, of_topics, of_rules = (modes.add_parser(name) for name in ("events", "topics", "rules"))
    of_events.add_argument("--records", type=int, default=1_000_000)
    of_events.add_argument("--job-records", type=int, default=100_000)
    of_topics.add_argument("--records", dest="topic_records", type=int, default=100_000)
    of_rules.add_argument("--rules", type=int, default=10_000)
    for mode in (of_events, of_topics, of_rules):
        mode.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    findings = Findings()
    for name, run in (("rules", rules), ("topics", topics), ("events", events)):
        if options.mode in (None, name):
            for result in run(options, findings):
                print(json.dumps(result), flush=True)
    print(json.dumps({"name": "findings", "value": sum(findings.counts.values()), **findings.counts}))
    raise SystemExit(1 if findings.counts else 0)


if __name__ == "__main__":
    main()
