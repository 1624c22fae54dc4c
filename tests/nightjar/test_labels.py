"""What alerts were: labels by the commands, checked where they are read, and the rules' precision from them."""

import csv
import gzip
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from nightjar.backfill.erasure.person import Person
from nightjar.backfill.erasure.rows import erase
from nightjar.backfill.erasure.traces import EVENTS, Traces
from nightjar.backfill.inputs.forgotten import Forgotten
from nightjar.backfill.publish.precision import Precision, of_rules, precision, read_precision
from nightjar.cli.app import app
from nightjar.contracts.labels import LABEL, label_record, message
from nightjar.kafka.readers import Reader
from nightjar.lake.scanning import scan
from nightjar.lake.tables import ALERTS, LABELS
from nightjar.operations.labelling import labels_of_file
from nightjar.rules.errors import SettingsError
from nightjar.rules.streams import load_streams
from tests.support.command import environment
from tests.support.explained_lake import DAY, MINUTES, named, small_lake
from tests.support.payments import NOON, days, fill
from tests.support.topics import TestTopics

STREAM = load_streams()["transactions"]
LONG_AFTER = NOON + days(9)
RECORD = label_record(
    alert_id="f" * 32, stream="transactions", event_id="t2", label="fraud", author="kim", source="analyst", known_at=0
)


def alert(number: int, **changed: Any) -> dict[str, Any]:
    """A record about an alert of its own at an event of its own."""
    row = {"alert_id": f"{number:032x}", "revision": 1, "kind": "alert", "source": "stream", "rule_id": "limit"}
    row |= {"rule_version": 1, "stream": "transactions", "event_id": f"t{number}", "event_time": NOON}
    return row | {"arrival_date": DAY} | changed


def label(said: str, known: datetime = NOON, offset: int = 0, **about: Any) -> dict[str, Any]:
    """A label in the lake."""
    row = {"stream": "transactions", "label": said, "author": "kim", "source": "analyst", "known_at": known}
    return row | {"partition": 0, "offset": offset, "arrival_time": NOON, "arrival_date": DAY} | about


def found(root: Path, until: datetime = LONG_AFTER) -> list[tuple[str, int, int, int, int]]:
    """Rule, version, fraud, legitimate, unsure."""
    every = precision(root, DAY, DAY, until)
    return [(each.rule_id, each.rule_version, each.fraud, each.legitimate, each.unsure) for each in every]


@pytest.mark.parametrize(
    "change",
    [
        {"label": "maybe"},
        {"label": None},
        {"alert_id": "f"},
        {"alert_id": None},
        {"alert_id": ["f" * 32]},
        {"stream": None},
        {"event_id": 2},
        {"author": " "},
        {"author": "a\nb"},
        {"author": "a" * 101},
        {"reason": "a\x1bb"},
        {"reason": "a" * 501},
        {"reason": None},
        {"source": "A B"},
        {"known_at": "yesterday"},
        {"known_at": None},
    ],
    ids=lambda change: f"{change!s:.40}",
)
def test_what_is_no_label_is_not_read(change: dict[str, Any]) -> None:
    """Anybody may write to a topic."""
    _, value = message(RECORD)
    assert LABEL.read(value) == RECORD
    assert LABEL.read(json.dumps(RECORD | change).encode()) is None


def test_the_label_that_became_known_last_counts(tmp_path: Path) -> None:
    """Of those of the alert and of its event, whichever arrived first; an alert without one, a retracted one and one of
    another day count nowhere."""
    fill(
        tmp_path,
        ALERTS,
        *(alert(number) for number in range(1, 6)),
        alert(5, revision=2, kind="retraction", source="backfill"),
        alert(6, rule_version=2),
        alert(7, event_time=NOON + days(1)),
        alert(8, event_id="t1", rule_id="other"),
    )
    fill(
        tmp_path,
        LABELS,
        label("legitimate", NOON + days(2), offset=1, alert_id=alert(1)["alert_id"], event_id="t1"),
        label("fraud", NOON + days(1), offset=2, event_id="t1"),
        label("fraud", NOON + days(1), offset=3, event_id="t2"),
        label("unsure", NOON + days(1), offset=4, event_id="t2"),
        label("fraud", event_id="t3", stream="logins"),
        *(label("fraud", event_id=f"t{number}", offset=number) for number in (5, 6, 7)),
        {"original": b"{}", "arrival_date": DAY},
    )
    assert found(tmp_path) == [("limit", 1, 0, 1, 1), ("limit", 2, 1, 0, 0), ("other", 1, 1, 0, 0)]


def test_a_label_counts_from_when_it_became_known(tmp_path: Path) -> None:
    """So a precision at an earlier time has nothing that was found out later."""
    fill(tmp_path, ALERTS, alert(1))
    first, second = (
        label(said, NOON + days(known), event_id="t1") for said, known in (("legitimate", 1), ("fraud", 30))
    )
    fill(tmp_path, LABELS, first, second)
    assert found(tmp_path, NOON) == []
    assert found(tmp_path, NOON + days(29)) == [("limit", 1, 0, 1, 0)]
    assert found(tmp_path, NOON + days(30)) == [("limit", 1, 1, 0, 0)]


def test_precision_is_of_what_is_known_to_be_the_one_or_the_other() -> None:
    """A rule has that of all its versions; what a run has written is read."""
    every = [Precision("a", 1, 3, 1, 5), Precision("a", 2, 0, 0, 1), Precision("b", 1, 0, 0, 2)]
    assert [each.precision for each in every] == [0.75, None, None]
    assert of_rules(every) == {"a": Precision("a", 2, 3, 1, 6), "b": every[2]}
    assert [read_precision(each.as_dict()) for each in every] == every


def test_labels_go_with_their_person(tmp_path: Path) -> None:
    """And a reason that names the person loses the name."""
    fill(
        tmp_path,
        LABELS,
        label("fraud", event_id="t1", reason="gone"),
        label("fraud", event_id="t9", offset=1, reason="as ann said"),
        {"original": b'{"event": "ann"}', "offset": 2, "arrival_date": DAY},
        {"original": b"x", "offset": 3, "arrival_date": DAY},
    )
    event = {
        "stream": "transactions",
        "partition": 0,
        "offset": 0,
        "event_id": "t1",
        "event_time": NOON,
        "arrival_time": NOON,
    }
    traces = Traces(Person({"customer_id": ("ann",)}), [STREAM], pl.DataFrame([event], EVENTS), Forgotten.none())
    (erasure,) = (each for each in traces.erasures() if each.table is LABELS)
    done = erase(tmp_path, erasure, dry_run=False)
    assert (done.rows, done.masked) == (2, 1)
    rows = scan(tmp_path, LABELS).sort("offset").collect()
    assert rows["event_id"].to_list() == [None, "t9", None, None]
    assert "ann" not in rows["reason"][1]
    assert rows["original"].to_list() == [b"", None, b"", b"x"]


def test_a_file_of_labels_is_read_in_the_words_that_files_have(tmp_path: Path) -> None:
    """NULL says nothing; times are text, or Parquet's own."""
    text = tmp_path / "back.csv.gz"
    lines = [
        "transaction_id,is_fraud,when",
        "t1,1,2026-01-05",
        "t2,0,2026-01-05T12:00:00+01:00",
        "t3,,",
        "t4,unsure,2026-01-05",
    ]
    text.write_bytes(gzip.compress("\n".join(lines).encode()))
    read = list(labels_of_file(text, STREAM, known="when", author="bank"))
    midnight = "2026-01-05T00:00:00.000000Z"
    assert [(each["event_id"], each["label"], each["known_at"]) for each in read] == [
        ("t1", "fraud", midnight),
        ("t2", "legitimate", "2026-01-05T11:00:00.000000Z"),
        ("t4", "unsure", midnight),
    ]
    assert {(each["source"], each["author"], each["stream"]) for each in read} == {
        ("chargeback", "bank", "transactions")
    }
    rows = pl.DataFrame({"event_id": ["t1"], "label": ["stolen"], "when": [NOON]})
    rows.write_parquet(tmp_path / "back.parquet")
    (stolen,) = labels_of_file(tmp_path / "back.parquet", STREAM, known="when", author="bank")
    assert (stolen["label"], stolen["known_at"]) == ("fraud", "2026-01-05T12:00:00.000000Z")


@pytest.mark.parametrize(
    ("row", "options", "why"),
    [
        ("t1,1,soon", {"known": "when"}, "label 1: soon: is not a time"),
        ("t1,1,2126-01-01", {"known": "when"}, "is in the future"),
        ("t1,1,", {"known": "when"}, "is not a time"),
        ("t1,1,", {"known": "then"}, "has no column then"),
        ("t1,1,", {"column": "said"}, "has no column said"),
        ("t1,1,", {"source": "the bank"}, "is not the name of a source"),
        ("t1,1,", {"author": ""}, "Say who says so"),
        ("t1,1,", {"reason": "two\nlines"}, "is not a line of text"),
    ],
)
def test_a_file_that_says_it_wrong_is_refused(tmp_path: Path, row: str, options: dict[str, str], why: str) -> None:
    """With the remedy."""
    path = tmp_path / "back.csv"
    path.write_text(f"transaction_id,label,when\n{row}\n")
    with pytest.raises(SettingsError, match=why):
        list(labels_of_file(path, STREAM, **{"author": "bank", **options}))


def test_without_a_broker_an_alert_that_the_lake_lacks_is_refused(tmp_path: Path) -> None:
    """And the reason that it may be elsewhere is said."""
    small_lake(tmp_path)
    given = {"NIGHTJAR_LAKE_DIR": str(tmp_path), "NIGHTJAR_BOOTSTRAP_SERVERS": "127.0.0.1:9", "COLUMNS": "400"}
    done = CliRunner().invoke(app, ["alerts", "label", "f" * 32, "fraud"], env=given)
    assert isinstance(done.exception, SettingsError)
    assert "there is no such alert" in str(done.exception)
    assert "Kafka could not be read" in str(done.exception)
    assert CliRunner().invoke(app, ["alerts", "label", "f" * 32, "dunno"], env=given).exit_code == 2


@pytest.mark.kafka
def test_the_commands_say_what_alerts_were(tmp_path: Path, kafka_topics: TestTopics) -> None:
    """One alert by its id, many by their events; and what the lake has of that is a rule's precision."""
    own = kafka_topics.ensure()
    ground = small_lake(tmp_path)
    ground.alert()
    given = environment(own.settings) | {"NIGHTJAR_LAKE_DIR": str(tmp_path), "COLUMNS": "400"}
    run = CliRunner()
    told = run.invoke(
        app, ["alerts", "label", named(), "fraud", "--reason", "she called", "--author", "Kim"], env=given
    )
    assert (told.exit_code, "of rule limit is fraud" in told.output) == (0, True), told.output
    file = tmp_path / "chargebacks.csv"
    with file.open("w") as out:
        csv.writer(out).writerows([("event_id", "label"), *((f"t{number}", 1) for number in range(3))])
    sent = run.invoke(
        app, ["alerts", "import-labels", str(file), "--stream", "transactions", "--author", "bank"], env=given
    )
    assert (sent.exit_code, "sent 3 labels" in sent.output) == (0, True), sent.output
    with Reader(own.settings, own.settings.labels_topic) as reader:
        records = [LABEL.row(record.value) for record in reader.all()]
    assert sorted((row["author"], row["event_id"], row["alert_id"]) for row in records if row) == [
        ("Kim", "t2", named()),
        ("bank", "t0", None),
        ("bank", "t1", None),
        ("bank", "t2", None),
    ]
    fill(tmp_path, LABELS, label("fraud", alert_id=named(), event_id="t2"))
    shown = run.invoke(app, ["alerts", "precision"], env=given)
    assert "100.0%" in shown.output
    early = run.invoke(app, ["alerts", "precision", "--until", f"{NOON - MINUTES:%Y-%m-%dT%H:%M}"], env=given)
    assert "no labelled alert" in early.output
    wrong = run.invoke(app, ["alerts", "precision", "--until", "soon"], env=given)
    assert "is not a time" in str(wrong.exception)
