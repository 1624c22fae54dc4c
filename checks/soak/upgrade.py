"""Upgrades the job under load by deploy/systemd/upgrade.sh, and checks that nothing is lost, wrong or announced again.

    python -m checks.soak.upgrade --from COMMIT [--events 3000]

Real broker, real jobs. The job of an earlier release, checked out from this repository, reads a history of payments.
The script replaces it by this release, and that by one that does not start, so it goes back. After the last event a
consumer's final alerts are compared with the truth; of each alert and revision there must be one content. systemd is
not there: a program of its name starts and stops the job as the unit says. Prints one JSON line per fact; exits with 0
if all checks pass.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from checks.bench.figures import log_progress
from checks.soak.end_to_end import conclude, fact
from nightjar.configuration.settings import load_settings
from nightjar.demo.report import Check
from nightjar.jvm.jars import PROJECT
from nightjar.local.kafka import LocalKafka
from nightjar.processes.process import family
from nightjar.rules.streams import load_streams
from tests.support.places import MINUTE, RULES, Place, final, history, place_of, truth
from tests.support.topics import TestTopics
from tests.support.units import UNITS, executable, install_systemctl

SCRIPT = UNITS / "upgrade.sh"
_PATIENCE = 300.0
# What systemctl does with the unit's ExecStart, and its TimeoutStopSec.
START = "setsid {command} >> job.log 2>&1 < /dev/null & echo $! > job.pid"
STOP = f"exec {sys.executable} -m checks.soak.upgrade --stop job.pid"
NIGHTJAR = """#!/bin/sh
PYTHONPATH={release} exec {python} -m nightjar "$@"
"""


def stop(file: Path) -> None:
    """Stop the job as systemd does."""
    members: list[psutil.Process] = []
    try:
        process = psutil.Process(int(file.read_text()))
        members = family(process)
        process.terminate()
        deadline = time.monotonic() + 60
        while process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
            time.sleep(0.1)
    except psutil.NoSuchProcess:
        return
    finally:
        for left in members:
            with suppress(psutil.NoSuchProcess):
                left.kill()


@contextmanager
def release(commit: str, folder: Path) -> Iterator[Path]:
    """A checkout of that commit, with what this one has installed."""
    subprocess.run(["git", "-C", PROJECT, "worktree", "add", "--quiet", "--detach", folder, commit], check=True)
    try:
        (folder / ".jars").symlink_to((PROJECT / ".jars").resolve())
        executable(folder / ".venv/bin/nightjar", NIGHTJAR.format(release=folder, python=sys.executable))
        yield folder
    finally:
        subprocess.run(["git", "-C", PROJECT, "worktree", "remove", "--force", folder], check=True)


def until(condition: Callable[[], bool], what: str, folder: Path) -> None:
    """Wait for it."""
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"error: waited for {what}\n{(folder / 'job.log').read_text()[-5000:]}")
        time.sleep(0.2)


def upgraded(place: Place, to: Path, environment: dict[str, str], patience: int) -> int:
    """The exit code of the script."""
    checkpoint = place.topics.settings.data_dir / "checkpoint"
    given = environment | {"UPGRADE_PATIENCE": str(patience)}
    done = subprocess.run([SCRIPT, place.folder, to, checkpoint], env=given, check=False, stdout=sys.stderr)
    return done.returncode


def run(commit: str, count: int, folder: Path) -> list[Check]:
    """The whole story."""
    with (
        LocalKafka(load_settings(data_dir=folder / "kafka", kafka_port=0)) as broker,
        release(commit, folder / "old") as old,
    ):
        new, broken = folder / "new", folder / "broken"
        executable(new / ".venv/bin/nightjar", NIGHTJAR.format(release=PROJECT, python=sys.executable))
        executable(broken / ".venv/bin/nightjar", "#!/bin/sh\nexit 1\n")
        settings = broker.settings.model_copy(update={"data_dir": folder / "data"})
        place = place_of(TestTopics(settings, load_streams()), folder)
        install_systemctl(folder, START, STOP)
        environment = {**os.environ, "PYTHONPATH": str(PROJECT), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
        environment |= place.environment(max_offsets_per_trigger=100)
        (folder / "current").symlink_to(old)
        events, _ = history(count)
        topic = place.topics.streams["transactions"].topic
        place.publish(*RULES, at=-MINUTE)
        try:
            subprocess.run(["systemctl", "start", "nightjar-job"], env=environment, check=True)
            until(lambda: place.settled(*((rule["id"], 1) for rule in RULES)), "the rules to be active", folder)
            place.send(events)
            until(lambda: sum(place.committed.get(topic, {}).values()) > count // 10, "some events", folder)
            log_progress("the upgrade")
            codes = [upgraded(place, new, environment, 180)]
            read = sum(place.committed.get(topic, {}).values())
            log_progress("an upgrade that fails")
            codes.append(upgraded(place, broken, environment, 20))
            until(place.consumed, "the rest of the events", folder)
        finally:
            subprocess.run(["systemctl", "stop", "nightjar-job"], env=environment, check=False)
        expected = truth(place, events)
        found = final(place)
        fact("alerts", expected=len(expected), records=len(place.alerts()), read_before_the_second_upgrade=read)
        return [
            Check("exit code of the upgrade", codes[0], 0),
            Check("exit code of the upgrade that fails", codes[1], 1),
            Check("the release in use is the one from before that", int((folder / "current").resolve() == new), 1),
            Check("alerts", len(found), len(expected)),
            Check("alerts that differ from the truth", sum(expected.get(name) != of for name, of in found.items()), 0),
        ]


def main() -> None:
    """Upgrade, and print the facts; exit with 1 if a check fails."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--from", dest="commit", help="the earlier release")
    arguments.add_argument("--events", type=int, default=3000)
    arguments.add_argument("--stop", type=Path, help=argparse.SUPPRESS)  # what systemctl runs
    options = arguments.parse_args()
    if options.stop is not None:
        stop(options.stop)
        return
    if options.commit is None:
        arguments.error("--from is missing")
    with tempfile.TemporaryDirectory(prefix="nightjar-soak-") as folder:
        found = run(options.commit, options.events, Path(folder).resolve())
    conclude(found)


if __name__ == "__main__":
    main()
