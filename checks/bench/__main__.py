"""Runs the benchmarks one after the other, to the end: a missed goal or a failed benchmark does not stop the others.

    python -m checks.bench [--quick] [NAME ...]

Figures go to standard output, what was missed or failed to standard error at the end. The exit code is 1 if a goal was
missed or a benchmark failed. With --quick each runs at its smallest size: that shows that it works, and its figures say
nothing, so that only failures count.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

from checks.bench.figures import log_progress

# Each benchmark, and its smallest size.
QUICK = {
    "engine": "--events 100000 --repeats 1",
    "many_rules": "--counts 10 100 --repeats 1",
    "constructs": "--events 20000 --rules 5 --repeats 1",
    "windows": "--held 1000 10000 --repeats 1",
    "memory": "--events 100000",
    "tables": "--rows 20000 --events 10000",
    "resolution": "--groups 10 --hours 1 --resolutions 1m",
    "latency": "--rates 200 --turns 1 --seconds 20 --after 10 --against stateful",
    "batch_ends": "--turns 1 --seconds 30 --after 15 --rate 200",
    "hour": "--minutes 1 --window 0.2 --after 0.4 --rate 200",
    "drain": "--events 300000 --turns 1 --backlogs uniform",
    "formats": "--events 300000 --turns 1",
    "format_sizes": "--events 5000",
    "start": "--rows 20000 --turns 1",
    "many_rules_job": "--count 50 --rate 200 --seconds 15 --turns 1",
    "priming": "--events 20000 --turns 1",
    "priming_latency": "--history 20000 --rate 100 --turns 1",
    "backfill": "--generated 20000 --repeats 1 --only all-days",
    "batch": "--generated 20000 --repeats 1",
    "gate": "100000 --repeats 1",
    "night": "--repeats 1",
    "night_memory": "50000 100000",
    "pages": "--events 20000 --days 2 --alerts 2000 --readers 5 --turns 1",
    "scale": "--executors 1 2 --events 20000",
}


def run(name: str, arguments: list[str]) -> tuple[int, list[str]]:
    """Run one benchmark and pass its figures on; returns its exit code and the names of figures that missed goals."""
    missed = []
    with subprocess.Popen(
        [sys.executable, "-m", f"{__package__}.{name}", *arguments], stdout=subprocess.PIPE, text=True
    ) as its:
        for line in its.stdout or ():
            print(line, end="", flush=True)
            figure = json.loads(line)
            if figure.get("met") is False:
                found = figure.get("ratio", figure["value"])
                missed.append(f"{name}: {figure['name']}: {found}, goal {figure['goal']}")
    return its.returncode, missed


def main() -> None:
    """Run them, and say what was missed and what failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(QUICK)}; all if none is named")
    parser.add_argument("--quick", action="store_true", help="the smallest sizes: shows that each benchmark works")
    options = parser.parse_args()
    if unknown := set(options.names) - set(QUICK):
        parser.error(f"no benchmark named {', '.join(sorted(unknown))}; there are {', '.join(QUICK)}")
    missed: list[str] = []
    failed: list[str] = []
    for name in options.names or QUICK:
        log_progress(f"==> {name}")
        code, goals = run(name, QUICK[name].split() if options.quick else [])
        missed += goals
        if code and not goals:
            failed.append(f"{name}: exit code {code}")
    for heading, lines in (("missed", [] if options.quick else missed), ("failed", failed)):
        for line in lines:
            log_progress(f"{heading}: {line}")
    log_progress(f"{len(options.names or QUICK)} benchmarks, {len(failed)} failed, {len(missed)} goals missed")
    raise SystemExit(1 if failed or (missed and not options.quick) else 0)


if __name__ == "__main__":
    main()
