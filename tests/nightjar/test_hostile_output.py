"""Every command over hostile values: nothing that a terminal acts upon and no markup of theirs reaches the output."""

import fcntl
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pytest
import typer
from deltalake import write_deltalake

from nightjar.cli import app
from nightjar.configuration.settings import Settings
from nightjar.contracts.snoozes import snooze_record
from nightjar.kafka.clients import producer
from nightjar.kafka.readers import Reader
from nightjar.kafka.topics import Topic, create
from nightjar.lake.json_topics import JsonReader
from nightjar.lake.tables import ALERTS, LABELS, RECONCILIATION, RULE_STATUS, VIOLATIONS, Table, events_table
from nightjar.notifications.outbox import Outbox, Routed
from nightjar.rules.alert_ids import alert_id
from nightjar.rules.canonical import canonical
from nightjar.rules.errors import printable
from nightjar.rules.lateness import SHIPPED
from nightjar.rules.streams import load_streams
from nightjar.rules.timestamps import microseconds
from tests.support.answers import answered
from tests.support.reports import word
from tests.support.topics import TestTopics

# Markup that would raise, hide and link, escapes of 7 and 8 bits, a line end, and a change of direction.
HOSTILE = "ann[/x][conceal]b[/conceal][link=http://e.example]l[/link]:bomb:\x1b[2J\x1b]0;t\x07\x9b2J\rc\nerror: d\u202e"
# The same for a file's name, which has no slashes.
NAME = HOSTILE.replace("/", "\\")
# What may be in a rule's one-line texts.
PRINTABLE = "ann[/x][conceal]b[/conceal][link=http://e.example]l[/link]:bomb:"

RULE: dict[str, Any] = {
    "id": "burst",
    "stream": "transactions",
    "group_by": ["customer_id"],
    "measures": {"n": {"count": "*", "over": "1h"}},
    "when": "n >= 1",
    "description": "{customer_id} " + HOSTILE,
    "author": PRINTABLE,
    "reason": PRINTABLE,
    "effective": "2026-01-01T00:00:00Z",
}
EVENT = {
    "transaction_id": "t1",
    "event_time": "2026-01-05T10:00:00Z",
    "customer_id": HOSTILE,
    "terminal_id": HOSTILE,
    "amount": "5.00",
}
TEN = datetime(2026, 1, 5, 10, tzinfo=UTC)
GROUP = {"customer_id": HOSTILE}
ALERT = {
    "alert_id": alert_id("burst", 1, "t1", microseconds(TEN), canonical(GROUP)),
    "revision": 1,
    "kind": "alert",
    "rule_id": "burst",
    "rule_version": 1,
    "rule_state": "active",
    "stream": "transactions",
    "group": GROUP,
    "event_id": "t1",
    "event_time": "2026-01-05T10:00:00Z",
    "measures": {"n": 1, "last": HOSTILE},
    "severity": "high",
    "text": HOSTILE,
    "muted": False,
    "source": "stream",
    "emitted_at": "2026-01-05T10:00:01Z",
}


@dataclass
class Ground:
    """Where a command runs: folder is the working folder; given: settings in the environment."""

    folder: Path
    given: dict[str, str] = field(default_factory=dict)
    topics: TestTopics | None = None

    def file(self, name: str, text: str) -> str:
        """A file whose name is hostile too."""
        path = self.folder / f"{NAME}{name}"
        path.write_text(text, encoding="utf-8")
        return str(path)

    @property
    def kafka(self) -> TestTopics:
        """The test's topics; only where the scenario asked for them."""
        assert self.topics is not None
        return self.topics

    def send(self, topic: str, *values: Any) -> None:
        """Put JSON or bytes on a topic, in one partition."""
        with producer(self.kafka.settings) as client:
            for value in values:
                written = value if isinstance(value, bytes) else json.dumps(value).encode()
                client.send(topic, written, key=b"k", partition=0).get()


@dataclass(frozen=True)
class Scenario:
    """prepare: makes what the command finds, and returns its arguments. shown: what must be in the output of it.
    alone: in a process of its own, as it stops the process' Spark session, which other tests share."""

    prepare: Callable[[Ground], list[str]]
    code: int
    kafka: bool = False
    shown: str = printable(HOSTILE)
    alone: bool = False


def _infer(ground: Ground) -> list[str]:
    return ["stream", "infer", ground.file("e.jsonl", json.dumps({HOSTILE: HOSTILE}))]


def _taken_port(ground: Ground) -> list[str]:
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    ground.sockets = [taken]  # type: ignore[attr-defined]  held as long as the test
    ground.given |= {"NIGHTJAR_AIRFLOW_PORT": str(taken.getsockname()[1]), "NIGHTJAR_DATA_DIR": f"data{NAME}"}
    return ["airflow"]


def _no_broker(*arguments: str) -> Callable[[Ground], list[str]]:
    def prepare(ground: Ground) -> list[str]:
        ground.given["NIGHTJAR_BOOTSTRAP_SERVERS"] = HOSTILE
        return list(arguments)

    return prepare


def _no_streams(ground: Ground) -> list[str]:
    ground.given["NIGHTJAR_STREAMS"] = NAME
    return ["pages"]


def _strangers(ground: Ground) -> list[str]:
    ground.given["NIGHTJAR_METRICS_HOST"] = HOSTILE
    return ["metrics"]


def _table(*arguments: str) -> Callable[[Ground], list[str]]:
    """A list whose only key, author and reason are hostile."""

    def prepare(ground: Ground) -> list[str]:
        shipped = Path(str(SHIPPED)).read_text()
        ground.given["NIGHTJAR_STREAMS"] = ground.file("s.toml", f"{shipped}\n[tables.blocked]\n")
        if ground.topics is not None:
            settings = ground.kafka.settings
            create(settings, Topic(settings.tables_topic, 1))
            change = {"table": "blocked", "set": [HOSTILE], "author": HOSTILE, "reason": HOSTILE}
            ground.send(settings.tables_topic, change)
        return ["table", *arguments]

    return prepare


def _locked(*arguments: str) -> Callable[[Ground], list[str]]:
    """The lake is in use by a process that has left a hostile name."""

    def prepare(ground: Ground) -> list[str]:
        ground.given["NIGHTJAR_LAKE_DIR"] = str(ground.folder / NAME)
        lock = (ground.folder / f".{NAME}.lock").open("w+")
        lock.write(HOSTILE)
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        ground.lock = lock  # type: ignore[attr-defined]
        return list(arguments)

    return prepare


def _no_java(ground: Ground) -> list[str]:
    ground.given |= {"JAVA_HOME": HOSTILE, "NIGHTJAR_JAR_DIR": str(ground.folder / "none")}
    return ["jars", "--no-archive"]


def _demo(ground: Ground) -> list[str]:
    ground.given["JAVA_HOME"] = HOSTILE
    return ["demo"]


def _rates(ground: Ground) -> list[str]:
    bad = {**RULE, "when": f"customer_id = '{HOSTILE}' AND nope > 1 /* {HOSTILE} */"}
    return ["rules", "check", ground.file("good.yaml", json.dumps(RULE)), ground.file("bad.yaml", json.dumps(bad))]


def _backtest(ground: Ground) -> list[str]:
    return ["backtest", "--rules", _rates(ground)[-1], "--from", "2026-01-05", "--to", "2026-01-06"]


def _import(ground: Ground) -> list[str]:
    return ["rules", "import", _rates(ground)[-1]]


def _add(ground: Ground) -> list[str]:
    return ["rules", "catalogue", "add", "login-after-guessing", "--to", _rates(ground)[-1]]


def _published(ground: Ground) -> None:
    ground.send(ground.kafka.settings.rules_topic, RULE)


def _publish(ground: Ground) -> list[str]:
    """A job that rejects what it reads, for hostile reasons."""
    settings = ground.kafka.settings

    def reject() -> None:
        with Reader(settings, settings.rules_topic) as topic:
            while not done.is_set():
                for _ in topic.poll():
                    answer = {"status": "REJECTED", "rule_id": "burst", "rule_version": None, "effective": HOSTILE}
                    ground.send(settings.rule_status_topic, b"\xff", answer | {"reasons": [HOSTILE]})

    done = Event()
    thread = Thread(target=reject)
    thread.start()
    ground.threads = [(done, thread)]  # type: ignore[attr-defined]
    return ["rules", "publish", "--wait", "--reason", PRINTABLE, ground.file("r.yaml", json.dumps(RULE))]


def _list(ground: Ground) -> list[str]:
    _published(ground)
    return ["rules", "list", "--all"]


def _diff(ground: Ground) -> list[str]:
    _published(ground)
    return ["rules", "diff", ground.file("r.yaml", json.dumps(RULE | {"description": HOSTILE, "when": "n >= 2"}))]


def _approve(ground: Ground) -> list[str]:
    ground.given["NIGHTJAR_APPROVALS"] = "1"
    _published(ground)
    return ["rules", "approve", "burst", "--version", "1", "--author", "bob", "--reason", PRINTABLE]


def _decline(ground: Ground) -> list[str]:
    ground.given["NIGHTJAR_APPROVALS"] = "1"
    _published(ground)
    return ["rules", "decline", "burst", "--version", "1", "--author", PRINTABLE, "--reason", PRINTABLE]


def _control(name: str) -> Callable[[Ground], list[str]]:
    def prepare(ground: Ground) -> list[str]:
        _published(ground)
        return ["rules", name, HOSTILE]

    return prepare


def _status(ground: Ground) -> list[str]:
    now = 2**52
    lag = {HOSTILE: {"events": 1, "seconds": 1.0, "end": 5}}
    rules = {HOSTILE: {"version": 1, "state": HOSTILE, "stream": HOSTILE}}
    report = word(now, state=HOSTILE, lag=lag, rules=rules, parts_ms={HOSTILE: 1.0})
    counts = {"events": 1, HOSTILE: 2}
    bucket = {"kind": "bucket", "bucket": 1, "stream": HOSTILE, "at": 1, "counts": counts, "retained": {HOSTILE: 3}}
    bad = [b"", b"\xff", b"[]", b"{}", b"9" * 5000, b'{"kind":"job"}', b"[" * 99_999, report | {"at": HOSTILE}]
    bad += [report | change for change in ({"lag": 3}, {"lag": {"x": {}}}, {"batches": 10**30}, {"process": -1})]
    ground.send(ground.kafka.settings.job_progress_topic, *bad, report, bucket)
    return ["status"]


def _tail(ground: Ground) -> list[str]:
    deep: Any = 1
    for _ in range(500):
        deep = [deep]
    bad = [b"", b"\xff", b"[" * 99_999, {}, {**ALERT, "revision": 0}, {**ALERT, "deep": deep}, {**ALERT, "kind": "x"}]
    ground.send(ground.kafka.settings.alerts_topic, *bad, ALERT | {"latency": float("nan")})
    return ["alerts", "tail", "--from-beginning", "--count", "1"]


def _forward(ground: Ground) -> list[str]:
    """The file is there, but with an address that nothing answers."""
    file = Path(ground.file("postgres", f"host='{HOSTILE.replace(chr(10), '')}'"))
    file.chmod(0o600)
    return ["alerts", "forward", "--postgres", str(file)]


def _notify(ground: Ground) -> list[str]:
    ground.given["NIGHTJAR_ALERT_ROUTES"] = ground.file("routes.toml", "[targets]\n")
    return ["alerts", "notify"]


def _notify_test(ground: Ground) -> list[str]:
    target = '[targets.desk]\nkind = "webhook"\nurl = "http://127.0.0.1:1"\nsecret_file = "s"\n'
    ground.given["NIGHTJAR_ALERT_ROUTES"] = ground.file("routes.toml", target + '[[routes]]\nto = ["desk"]\n')
    return ["alerts", "notify", "--test", HOSTILE]


def _undelivered(ground: Ground) -> list[str]:
    ground.given["NIGHTJAR_OUTBOX"] = str(ground.folder / "outbox.sqlite")
    with Outbox(ground.folder / "outbox.sqlite") as outbox:
        outbox.take("x", [Routed(HOSTILE, ALERT, HOSTILE, 0, urgent=False)], {}, 0)
        sealed = outbox.next(HOSTILE, 1, quiet=False, listed=1, splits=True)
        assert sealed is not None
        outbox.failed(sealed, HOSTILE, given_up=2)
    return ["alerts", "undelivered"]


def _case(ground: Ground) -> list[str]:
    when = {"transaction_id": "t1", "event_time": "1m", "terminal_id": "m", "amount": 5}
    steps = [
        {"at": "0m", "rules": [RULE, {"id": HOSTILE}]},
        {"at": "2m", "events": {"transactions": [when | {"customer_id": HOSTILE}, HOSTILE]}},
    ]
    expect = {"final": [{"event_id": HOSTILE}], "late": [{"event_id": HOSTILE}]}
    rule = {**RULE, "effective": None}
    steps[0]["rules"] = [rule, {"id": HOSTILE}]
    case = {"title": HOSTILE, "settings": {"activation_delay": "0s"}, "steps": steps, "expect": expect}
    return ["simulate", ground.file("case.yaml", json.dumps(case))]


def _evaluate(ground: Ground) -> list[str]:
    rules = ground.file("rules.yaml", json.dumps(RULE))
    events = ground.file("events.jsonl", json.dumps(EVENT) + "\n")
    out = str(ground.folder / f"{NAME}out.parquet")
    return ["evaluate", "--stream", "transactions", "--rules", rules, "--events", events, "--out", out]


def _evaluate_with_bad_lines(ground: Ground) -> list[str]:
    command = _evaluate(ground)
    at = command.index("--events") + 1
    lines = [json.dumps(EVENT), HOSTILE.replace("\n", ""), json.dumps(EVENT | {"event_time": HOSTILE})]
    command[at] = ground.file("bad.jsonl", "\n".join(lines))
    return [*command, "--max-bad-lines", "9"]


def _generate(ground: Ground) -> list[str]:
    out = str(ground.folder / NAME)
    return ["generate", "--out", out, "--days", "1", "--customers", "3", "--terminals", "3", "--events", "10"]


def _explain(ground: Ground) -> list[str]:
    lake = ground.folder / "lake"
    ground.given["NIGHTJAR_LAKE_DIR"] = str(lake)
    arrived = TEN
    place = {"partition": 0, "offset": 0, "arrival_time": arrived, "arrival_date": arrived.date()}
    stream = load_streams()["transactions"]
    alert = JsonReader(ALERTS).row(json.dumps(ALERT).encode())
    typed = {"event_time": arrived, "emitted_at": arrived}
    event = EVENT | {"event_time": arrived, "amount": Decimal(EVENT["amount"])}
    _write(lake, events_table(stream), event | place)
    _write(lake, ALERTS, alert | typed | place)
    (record,) = answered({stream.name: stream}, RULE)
    answer = JsonReader(RULE_STATUS).row(record.value)
    _write(lake, RULE_STATUS, answer | place | {"effective": arrived})
    for table in (VIOLATIONS, RECONCILIATION):
        _write(lake, table)
    return ["explain", str(ALERT["alert_id"])]


def _label(ground: Ground) -> list[str]:
    return ["alerts", "label", _explain(ground)[1], "fraud", "--reason", HOSTILE]


def _snooze(ground: Ground) -> list[str]:
    return ["alerts", "snooze", _explain(ground)[1], "--for", "1d", "--reason", HOSTILE]


def _snoozes(ground: Ground) -> list[str]:
    at = time.time_ns() // 1000
    about = {"rule_id": HOSTILE, "group": canonical({"customer_id": HOSTILE}), "author": "kim", "reason": "travels"}
    record = snooze_record(**about, since=at, until=at + 10**9, now=at)
    ground.send(ground.kafka.settings.snoozes_topic, record)
    return ["alerts", "snoozes"]


def _import_labels(ground: Ground) -> list[str]:
    rows = f"event_id,label,known\nt1,1,{printable(HOSTILE)}\n"
    return ["alerts", "import-labels", ground.file("l.csv", rows), "--stream", "transactions", "--known", "known"]


def _precision(ground: Ground) -> list[str]:
    lake = ground.folder / "lake"
    ground.given["NIGHTJAR_LAKE_DIR"] = str(lake)
    place = {"partition": 0, "offset": 0, "arrival_time": TEN, "arrival_date": TEN.date()}
    about = {"stream": "transactions", "event_id": "t1"}
    alert = {"alert_id": "f" * 32, "revision": 1, "kind": "alert", "source": "stream", "rule_id": HOSTILE}
    _write(lake, ALERTS, alert | about | place | {"rule_version": 1, "event_time": TEN})
    _write(lake, LABELS, about | place | {"label": "fraud", "known_at": TEN})
    return ["alerts", "precision"]


def _forget(ground: Ground) -> list[str]:
    _explain(ground)
    return ["lake", "forget", "--key", f"customer_id={HOSTILE}"]


def _write(lake: Path, table: Table, *rows: dict[str, Any]) -> None:
    content = pa.Table.from_pylist([dict.fromkeys(table.columns) | row for row in rows], table.arrow)
    write_deltalake(str(lake / table.name), content, partition_by=list(table.partitioned_by) or None)


SCENARIOS: dict[str, list[Scenario]] = {
    "airflow dags": [
        Scenario(lambda ground: ["airflow", "dags", "--link", str(ground.folder / NAME)], 2, shown=printable(NAME))
    ],
    "airflow plugins": [
        Scenario(lambda ground: ["airflow", "plugins", "--link", str(ground.folder / NAME)], 2, shown=printable(NAME))
    ],
    "airflow prepare": [
        Scenario(lambda _: ["airflow", "prepare", "--connection", HOSTILE], 2, shown="is not the id of a connection")
    ],
    "jars": [Scenario(_no_java, 2, shown="no java found")],
    "airflow": [Scenario(_taken_port, 2, shown=printable(NAME))],
    "alerts forward": [
        Scenario(_forward, 2, shown=printable(NAME)),
        Scenario(lambda _: ["alerts", "forward", "--avro", HOSTILE], 2),
    ],
    "alerts import-labels": [Scenario(_import_labels, 2, shown="label 1: ann[")],
    "alerts label": [Scenario(_label, 2)],
    "alerts notify": [
        Scenario(_notify, 2, shown=printable(NAME)),
        Scenario(_notify_test, 2, shown="is not a target"),
    ],
    "alerts precision": [
        Scenario(_precision, 0),
        Scenario(lambda _: ["alerts", "precision", "--until", HOSTILE], 2),
    ],
    "alerts snooze": [Scenario(_snooze, 2)],
    "alerts snoozes": [Scenario(_snoozes, 0, kafka=True, shown="ann[/x]")],
    "alerts unsnooze": [Scenario(lambda _: ["alerts", "unsnooze", HOSTILE, "--reason", "x"], 2)],
    "alerts tail": [Scenario(_tail, 0, kafka=True)],
    "alerts undelivered": [Scenario(_undelivered, 0, shown="ann[/x][conceal]b")],
    "archive": [Scenario(_locked("archive"), 2, shown=printable(NAME))],
    "backfill": [
        Scenario(_locked("backfill", "--day", "2026-01-05"), 2, shown=printable(NAME)),
        Scenario(lambda _: ["backfill", "--day", HOSTILE], 2),
    ],
    "demo": [Scenario(_demo, 2)],
    "evaluate": [
        Scenario(_evaluate, 0, shown=printable(NAME)),
        Scenario(_evaluate_with_bad_lines, 0, shown="lines left out"),
    ],
    "explain": [
        Scenario(_explain, 0, shown="ann[/x][conceal]b"),
        Scenario(lambda ground: [*_explain(ground)[:-1], HOSTILE], 2),
    ],
    "generate": [Scenario(_generate, 0, shown="[link=http:\\\\e.example]l[\\link]")],
    "lake forget": [
        Scenario(_forget, 0, kafka=True, shown="Repeat the command with --yes to erase"),
        Scenario(lambda ground: [*_forget(ground)[:-1], f"{HOSTILE}=1"], 2, shown="ann[/x][conceal]b"),
    ],
    "lake maintain": [Scenario(_locked("lake", "maintain"), 2, shown=printable(NAME))],
    "lake repair": [
        Scenario(_locked("lake", "repair", "--day", "2026-01-05", "--yes"), 2, shown=printable(NAME)),
        Scenario(lambda _: ["lake", "repair", "--day", HOSTILE], 2),
    ],
    "metrics": [Scenario(_strangers, 2)],
    "pages": [Scenario(_no_streams, 2, shown=printable(NAME))],
    "replay": [Scenario(lambda ground: ["replay", ground.file("e.csv", ""), "--stream", HOSTILE], 2)],
    "backtest": [Scenario(_backtest, 2, shown="a comment is not allowed in a predicate")],
    "rules import": [Scenario(_import, 2, shown=printable(NAME))],
    "rules check": [Scenario(_rates, 2, shown=printable(NAME))],
    "rules test": [Scenario(lambda ground: ["rules", "test", _rates(ground)[2], "--cases", _case(ground)[1]], 1)],
    "rules publish": [Scenario(_publish, 1, kafka=True)],
    "rules approve": [Scenario(_approve, 0, kafka=True, shown="ann[/x][conceal]b[/conceal]")],
    "rules decline": [Scenario(_decline, 0, kafka=True, shown="burst")],
    "rules list": [Scenario(_list, 0, kafka=True, shown="ann[/x]")],
    "rules restore": [
        Scenario(lambda ground: ["rules", "restore", "--lake", str(ground.folder / NAME)], 2, shown=printable(NAME))
    ],
    "rules catalogue add": [
        Scenario(lambda _: ["rules", "catalogue", "add", "structuring", "--stream", HOSTILE], 2),
        Scenario(_add, 2, shown=printable(NAME)),
    ],
    "rules catalogue list": [Scenario(lambda _: ["rules", "catalogue", "list", "--tag", HOSTILE], 2)],
    "rules catalogue show": [Scenario(lambda _: ["rules", "catalogue", "show", HOSTILE], 2)],
    "rules diff": [Scenario(_diff, 1, kafka=True, shown="ann[/x][conceal]b[/conceal]")],
    **{
        f"rules {name}": [Scenario(_control(name), 2, kafka=True, shown="ann[/x]")]
        for name in ("pause", "resume", "shadow", "retire")
    },
    "simulate": [Scenario(_case, 1)],
    "status": [Scenario(_status, 0, kafka=True)],
    "stream": [Scenario(_no_broker("stream"), 2, shown="[/x]", alone=True)],
    "stream infer": [Scenario(_infer, 0, shown=":bomb:\\U0000001b[2J")],
    "stream rebuild": [Scenario(_locked("stream", "rebuild"), 2, shown=printable(NAME))],
    "table list": [Scenario(_table("list"), 0, kafka=True, shown="ann[/x]")],
    "table show": [
        Scenario(_table("show", "blocked"), 0, kafka=True, shown="ann[/x]"),
        Scenario(_table("show", HOSTILE), 2),
    ],
    "table history": [Scenario(_table("history", "blocked"), 0, kafka=True, shown="ann[/x]")],
    "table approve": [Scenario(_table("approve", "blocked", HOSTILE), 2, kafka=True)],
    "table decline": [Scenario(_table("decline", "blocked", HOSTILE, "--reason", "y"), 2, kafka=True)],
    "table set": [
        Scenario(_table("set", "blocked", "x", "--reason", "y", "--valid-from", HOSTILE), 2),
        Scenario(
            _table("set", "blocked", "x", "--reason", "y", "--value", HOSTILE),
            2,
            shown="ann[/x][conceal]b[/conceal][link",  # to the =, behind which its value is
        ),
    ],
    "table remove": [Scenario(_table("remove", HOSTILE, "x", "--reason", "y"), 2)],
    "table import": [
        Scenario(
            lambda ground: [*_table("import", "blocked")(ground), str(ground.folder / NAME), "--reason", "y"],
            2,
            shown=printable(NAME),
        )
    ],
    "topics": [Scenario(lambda _: ["topics", "--acls", "--principal", f"job=User:{HOSTILE}"], 0)],
    "topics add-logins": [Scenario(lambda _: ["topics", "add-logins", f"{NAME}=x"], 2, shown="[conceal]b")],
    "topics create": [Scenario(_no_broker("topics", "create"), 2)],
    "topics grant": [Scenario(lambda _: ["topics", "grant", "--principal", HOSTILE], 2)],
    "up": [Scenario(_no_broker("up"), 2)],
}
MACHINE_READABLE = [
    "alerts precision",
    "alerts snoozes",
    "alerts tail",
    "alerts undelivered",
    "evaluate",
    "explain",
    "generate",
    "rules list",
    "simulate",
    "status",
    "table history",
    "table list",
    "table show",
    "topics",
]


def commands() -> list[str]:
    """Every command of the program, groups that run by themselves among them."""

    def below(group: Any, path: tuple[str, ...]) -> Iterator[str]:
        within = getattr(group, "commands", {})
        if not within or group.invoke_without_command:
            yield " ".join(path)
        for name, command in within.items():
            yield from below(command, (*path, name))

    program: Any = typer.main.get_command(app.app)
    return [name for command, each in program.commands.items() for name in below(each, (command,))]


def test_every_command_has_a_scenario() -> None:
    """A new command cannot be forgotten, nor one that prints JSON."""
    assert set(SCENARIOS) == set(commands())


def _cases() -> list[Any]:
    return [
        pytest.param(name, number, marks=[pytest.mark.kafka] if scenario.kafka else [], id=f"{name} {number}")
        for name, scenarios in SCENARIOS.items()
        for number, scenario in enumerate(scenarios)
    ]


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    """A folder of the test's own, and what a scenario started ended."""
    monkeypatch.chdir(tmp_path)
    made = Ground(tmp_path)
    yield made
    for done, thread in getattr(made, "threads", []):
        done.set()
        thread.join()
    for held in (*getattr(made, "sockets", []), getattr(made, "lock", None)):
        if held is not None:
            held.close()


def run(
    scenario: Scenario,
    ground: Ground,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *more: str,
) -> tuple[int, str, str]:
    """The program, in this process where it can be: exit code, output, errors. What is no error of ours is raised."""
    if scenario.kafka:
        ground.topics = request.getfixturevalue("kafka_topics").ensure()
        names = [name for name in Settings.model_fields if name.endswith("_topic")]
        settings = ground.kafka.settings
        ground.given |= {f"NIGHTJAR_{name.upper()}": str(getattr(settings, name)) for name in names}
        ground.given["NIGHTJAR_BOOTSTRAP_SERVERS"] = settings.bootstrap
    arguments = scenario.prepare(ground)
    for name, value in ground.given.items():
        monkeypatch.setenv(name, value)
    if scenario.alone:
        done = subprocess.run(
            [sys.executable, "-m", "nightjar", *arguments, *more], capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout, done.stderr
    monkeypatch.setattr(sys, "argv", ["nightjar", *arguments, *more])
    capsys.readouterr()
    code = 0
    try:
        app.main()
    except SystemExit as ended:
        code = int(ended.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), _cases())
def test_values_are_text(
    name: str,
    number: int,
    ground: Ground,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They are shown as they are, with what a terminal acts upon written out; no line of theirs poses as an error."""
    scenario = SCENARIOS[name][number]
    code, out, err = run(scenario, ground, request, monkeypatch, capsys)
    output = out + err
    assert code == scenario.code, output
    assert {character for character in output if not character.isprintable()} <= {"\n"}
    assert not any(line.startswith("error: d") for line in output.splitlines())
    assert _unwrapped(scenario.shown) in _unwrapped(output), output


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.kafka] * SCENARIOS[name][0].kafka) for name in MACHINE_READABLE]
)
def test_json_stays_json(
    name: str,
    ground: Ground,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each line is one value without NaN, in ASCII without control characters, and holds what was sent."""
    scenario = SCENARIOS[name][0]
    code, out, _ = run(scenario, ground, request, monkeypatch, capsys, "--json")
    assert code == scenario.code

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    values = [json.loads(line, parse_constant=refuse) for line in out.splitlines()]
    assert values
    assert out.isascii()
    assert all(character.isprintable() or character == "\n" for character in out)
    assert "ann[" in str(values)


def test_every_command_that_prints_json_is_among_them() -> None:
    """Or needs Spark or a changed topic for it, or prints what nightjar ships."""
    program = typer.main.get_command(app.app)
    with_json = set()
    for name in commands():
        command: Any = program
        for part in name.split():
            command = command.commands[part]
        if any("--json" in option.opts for option in command.params):
            with_json.add(name)
    assert with_json == {
        *MACHINE_READABLE,
        "archive",
        "backfill",
        "backtest",
        "lake forget",
        "lake maintain",
        "lake repair",
        "replay",
        "rules approve",
        "rules catalogue list",
        "rules catalogue show",
        "stream rebuild",
    }


def _unwrapped(text: str) -> str:
    """A table folds long values; its borders and the spaces of its cells are no part of them."""
    return "".join(text.replace("│", "").replace("┃", "").split())
