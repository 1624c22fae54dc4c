"""The server that does a night's stages: a real process with a real Spark, and what becomes of it."""

import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from nightjar.airflow import stage_client
from nightjar.airflow.stage_client import StageClient, StageFailedError, stop_servers
from nightjar.airflow.stage_socket import StageServerError, changed_parts, server_folder, server_key, session_parts
from nightjar.airflow.submission import FAILED, VERDICT

pytestmark = pytest.mark.timeout(240)

SECONDS = 60.0
DAY = ["--run-id", "r", "--day", "2026-01-05"]
# A stage that takes half a minute to find that there is no Kafka.
LONG = ["archive", *DAY]

# As Airflow's task runner does: on SIGTERM it calls `on_kill`, and goes on.
CLIENT = """
import signal, sys
from nightjar.airflow.stage_client import StageClient
client = StageClient(sys.argv[1], sys.argv[2:])
signal.signal(signal.SIGTERM, lambda *_: client.stop())
client.run(print)
"""


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Whose servers the test's are; in force are settings of an empty lake and of a Kafka that does not answer."""
    given = {"data_dir": tmp_path / "data", "spark_master": "local[2]", "driver_memory": "1g"}
    given |= {"bootstrap_servers": "127.0.0.1:9"}
    for name, value in given.items():
        monkeypatch.setenv(f"NIGHTJAR_{name}".upper(), str(value))
    yield str(tmp_path)
    stop_servers(str(tmp_path))


def until(condition: Callable[[], object], what: str) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"after {SECONDS:.0f} s: {what}"
        time.sleep(0.05)


def family(owner: str) -> list[psutil.Process]:
    """The owner's server, and all that it has started. One that has ended, or is about to, leaves its lock."""
    lock = max(server_folder(owner).glob("*.lock"), key=lambda file: file.stat().st_mtime_ns)
    server = psutil.Process(int(lock.read_text()))
    return [server, *server.children(recursive=True)]


def in_mid_stage(tmp_path: Path) -> bool:
    """Whether a stage has the lake."""
    lock = tmp_path / "data" / ".lake.lock"
    if not lock.exists():
        return False
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def gone(processes: list[psutil.Process]) -> bool:
    """Whether none of them runs."""
    return not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in processes)


@pytest.mark.spark
@pytest.mark.slow
def test_stages_share_a_process_until_one_fails(owner: str) -> None:
    """Their log lines come through, and their exit codes; after a failure, but not a verdict, another is started."""
    reported: list[str] = []
    StageClient(owner, ["pending", *DAY]).run(reported.append)
    assert any("no earlier day is pending" in line for line in reported)
    server, *started = family(owner)
    assert any("java" in process.name() for process in started)

    reported.clear()
    StageClient(owner, ["evaluate", *DAY, "--dry-run"]).run(reported.append)
    assert any('"event": "a stage is done"' in line for line in reported)
    with pytest.raises(StageFailedError, match="archive") as refused:
        StageClient(owner, ["evaluate", *DAY]).run(reported.append)
    assert refused.value.code == VERDICT
    assert family(owner)[0] == server, "one process did all of it"

    with pytest.raises(StageFailedError, match=r"has not been evaluated\. Run its evaluate stage first") as failed:
        StageClient(owner, ["gate", "--run-id", "other", "--day", "2026-01-05"]).run(reported.append)
    assert failed.value.code == FAILED
    assert reported[-1].startswith("error: ")
    until(lambda: gone([server, *started]), "the server of a stage that failed still runs")


@pytest.mark.spark
@pytest.mark.slow
def test_a_server_whose_jvm_was_killed_is_not_used_again(owner: str, tmp_path: Path) -> None:
    """The next stage has another, and one that is asked to stop does."""
    StageClient(owner, ["pending", *DAY]).run(print)
    server, *started = family(owner)
    next(process for process in started if "java" in process.name()).kill()
    until(lambda: gone([server, *started]), "the server still runs")

    command = [sys.executable, "-c", CLIENT, owner, *LONG]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as task:
        until(lambda: in_mid_stage(tmp_path), "the stage has not begun")
        processes = family(owner)
        task.terminate()
        until(lambda: gone(processes), "the stage goes on")
        _, reported = task.communicate()
    assert processes[0] != server
    assert "the stage was stopped" in reported


@pytest.mark.spark
@pytest.mark.slow
def test_a_stage_ends_with_the_task_that_waits_for_it(owner: str, tmp_path: Path) -> None:
    """With the JVM, at once, however the task ends."""
    command = [sys.executable, "-c", CLIENT, owner, *LONG]
    with subprocess.Popen(command) as task:
        until(lambda: in_mid_stage(tmp_path), "the stage has not begun")
        processes = family(owner)
        assert len(processes) > 1
        task.kill()
    until(lambda: gone(processes), "the stage goes on")


@pytest.mark.spark
@pytest.mark.slow
def test_a_task_whose_server_is_killed_fails_with_a_message(owner: str, tmp_path: Path) -> None:
    """Not with the code of a verdict, so that it is tried again."""
    raised: list[StageFailedError] = []

    def task() -> None:
        with pytest.raises(StageFailedError) as lost:
            StageClient(owner, LONG).run(print)
        raised.append(lost.value)

    waiting = threading.Thread(target=task)
    waiting.start()
    until(lambda: in_mid_stage(tmp_path), "the stage has not begun")
    processes = family(owner)
    processes[0].kill()
    waiting.join(SECONDS)
    assert [error.code for error in raised] == [FAILED]
    assert "died during the stage" in str(raised[0])
    until(lambda: gone(processes), "its JVM still runs")


def test_other_settings_code_or_jars_are_another_servers(owner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Airflow passes to each task about itself makes no difference."""
    key = server_key(session_parts(os.environ))
    monkeypatch.setenv("AIRFLOW_CTX_TASK_ID", "gate")
    assert server_key(session_parts(os.environ)) == key
    monkeypatch.setenv("NIGHTJAR_DRIVER_MEMORY", "2g")
    other = server_key(session_parts(os.environ))
    monkeypatch.setenv("NIGHTJAR_KAFKA", '{"sasl.password": "secret"}')
    secret = server_key(session_parts(os.environ))
    monkeypatch.setenv("NIGHTJAR_KAFKA", '{"sasl.password": "changed"}')
    assert len({key, other, secret, server_key(session_parts(os.environ))}) == 4


def test_a_change_of_the_declared_streams_is_another_servers(
    owner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their content: a file of the same name and size, written within the same moment, is still another."""
    file = tmp_path / "streams.toml"
    monkeypatch.setenv("NIGHTJAR_STREAMS", str(file))
    file.write_text("a = 1")
    key = server_key(session_parts(os.environ))
    file.write_text("a = 2")
    assert server_key(session_parts(os.environ)) != key


def test_what_another_server_is_needed_for_is_named(owner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its value, which may be a secret; of many, the first."""
    before = session_parts(os.environ)
    assert changed_parts(before, session_parts(os.environ)) == ""
    monkeypatch.setenv("NIGHTJAR_KAFKA", '{"sasl.password": "changed"}')
    assert changed_parts(before, session_parts(os.environ)) == "setting kafka, variable NIGHTJAR_KAFKA"
    code = {**before["code"], "a.py": [1, 2]}
    assert changed_parts(before, {**before, "code": code}) == "code a.py"
    assert changed_parts(before, {**before, "code": {}}).endswith(f"and {len(before['code']) - 3} more")


def test_a_folder_that_others_can_enter_is_refused(owner: str) -> None:
    """Somebody else may have made it to answer in the server's place."""
    folder = server_folder(owner)
    folder.chmod(0o755)
    try:
        with pytest.raises(StageServerError, match="not a private folder of this user"):
            StageClient(owner, ["pending", *DAY]).run(print)
    finally:
        folder.chmod(0o700)


def test_a_server_that_cannot_start_reports_why(owner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the end of its log, and nothing is left running."""
    monkeypatch.setattr(stage_client, "SERVER", "nightjar.no_such_server")
    with pytest.raises(StageFailedError, match=r"No module named nightjar\.no_such_server"):
        StageClient(owner, ["pending", *DAY]).run(print)
