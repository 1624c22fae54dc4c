"""The Python API: `import nightjar` in a notebook, a service or a test suite."""

import copy
import json
import pickle
import re
import subprocess
import sys
from contextlib import redirect_stdout
from datetime import date, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal
from pyspark.sql import SparkSession

import nightjar
from nightjar.files.errors import EventsError
from nightjar.lake.config import LakeError
from nightjar.lake.tables import ALERTS, CORRECTIONS, RECONCILIATION, RUNS, VIOLATIONS
from nightjar.rules.alert_ids import alert_id
from nightjar.rules.errors import RuleError, SettingsError
from nightjar.rules.model import parse_rule
from nightjar.rules.timestamps import microseconds
from tests.support.payments import NOON, STREAM, add, days, fill, payment, publish

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "python.md"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MINUTE = timedelta(minutes=1)

BURST: dict[str, Any] = {
    "id": "burst",
    "stream": "transactions",
    "group_by": ["customer_id"],
    "when": "n >= 2",
    "measures": {
        "n": {"count": "*", "over": "1h"},
        "spent": {"sum": "amount", "over": "1h"},
        "shops": {"values": "terminal_id", "over": "1h"},
        "mean": {"avg": "amount", "over": "1h"},
        "first": {"min": "event_time", "over": "1h"},
    },
}
COLUMNS = ["transaction_id", "event_time", "customer_id", "terminal_id", "amount"]
EVENTS = pa.Table.from_pylist(
    [payment("t1", NOON), payment("t2", NOON + MINUTE, customer_id="eve"), payment("t3", NOON + 2 * MINUTE)]
).select(COLUMNS)
PANDAS = EVENTS.to_pandas().astype({"customer_id": "category"})


def test_the_page_says_what_happens() -> None:
    """Each block of docs/reference/python.md runs, and prints the text below it."""
    names: dict[str, Any] = {}
    printed, shown = "", []
    for language, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if language == "python":
            out = StringIO()
            with redirect_stdout(out):
                exec(compile(text, str(PAGE), "exec"), names)  # noqa: S102  our own page
            printed = out.getvalue()
        else:
            assert printed == text
            shown.append(text)
    assert len(shown) >= 3


def test_the_page_names_all_that_is_public() -> None:
    """And nothing is public that it does not name."""
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in nightjar.__all__ if not re.search(rf"`[^`]*\b{name}\b[^`]*`", page)] == []
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", nightjar.__version__)
    assert all(getattr(nightjar, name).__doc__ for name in nightjar.__all__)
    with pytest.raises(AttributeError, match="no attribute 'evaluates'"):
        _ = nightjar.evaluates  # type: ignore[attr-defined]


def test_the_import_loads_nothing() -> None:
    """Libraries are loaded by the function that needs them."""
    program = "import sys, nightjar; print(sorted(name for name in sys.modules if name.startswith('nightjar.')), "
    program += "*({'polars', 'pyarrow', 'pyspark', 'numba', 'pydantic'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    "events",
    [
        EVENTS,
        pl.DataFrame(EVENTS),
        pl.LazyFrame(pl.DataFrame(EVENTS)),
        PANDAS,
        pl.DataFrame(EVENTS).with_columns(pl.col("terminal_id").cast(pl.Categorical), pl.col("amount").cast(pl.String)),
    ],
    ids=["arrow", "polars", "lazy", "pandas", "categories"],
)
def test_a_table_of_any_library_is_evaluated_alike(events: Any) -> None:
    """The same rows, in the types that measures have."""
    found = nightjar.evaluate(BURST, events, stream="transactions")
    assert (found.events, found.duplicates, found.rules) == (3, 0, ["burst"])
    assert found.violations.get_column("event_id").to_list() == ["t3"]
    assert json.loads(found.violations.get_column("measures")[0])["spent"] == "2.00"
    measures = found.measures("burst")
    assert measures.get_column("transaction_id").to_list() == ["t1", "t2", "t3"]
    assert measures.get_column("violated").to_list() == [False, False, True]
    assert measures.get_column("spent").cast(pl.Float64).to_list() == [1.0, 1.0, 2.0]
    assert measures.get_column("shops").to_list() == ["m1", "m1", "m1"]
    assert measures.get_column("mean").to_list() == [1.0, 1.0, 1.0]
    assert measures.get_column("first").to_list() == [NOON, NOON + MINUTE, NOON]
    assert measures.columns == ["transaction_id", "event_time", "customer_id", "violated", *BURST["measures"]]


@pytest.mark.spark
def test_a_dataframe_of_spark_is_evaluated(spark: SparkSession) -> None:
    """As the same rows from Arrow are."""
    frame = spark.createDataFrame(EVENTS.to_pandas())
    found = nightjar.evaluate(BURST, frame, stream="transactions")
    expected = nightjar.evaluate(BURST, EVENTS, stream="transactions")
    assert_frame_equal(found.measures("burst"), expected.measures("burst"))


def test_a_file_is_evaluated(tmp_path: Path) -> None:
    """By its path, as text or not."""
    file = tmp_path / "events.parquet"
    pl.DataFrame(EVENTS).write_parquet(file)
    for path in (file, str(file)):
        assert nightjar.evaluate(BURST, path, stream="transactions").violations.height == 1


def test_arrivals_are_not_read() -> None:
    """As by the command (S8.5): of two events with one id the one with the earlier time counts."""
    first, second = payment("t1", NOON), payment("t1", NOON + MINUTE, NOON - MINUTE, amount=5)
    table = pa.Table.from_pylist([second, first]).select([*COLUMNS, "arrival_time"])
    found = nightjar.evaluate(BURST, table, stream="transactions")
    assert found.duplicates == 1
    assert found.measures("burst").get_column("event_time").to_list() == [NOON]
    assert repr(found) == "Evaluation(events=2, duplicates=1, violations={'burst': 0})"


def test_times_that_look_like_seconds_are_doubtful() -> None:
    """A warning, as the command prints one."""
    seconds = pl.DataFrame(EVENTS).with_columns(event_time=pl.lit(1_767_614_400))
    with pytest.warns(UserWarning, match="is 1767614400 in seconds"):
        nightjar.evaluate(BURST, seconds, stream="transactions")


def test_other_columns_are_ignored_and_a_mixed_one_is_refused() -> None:
    """Whatever the others hold; a value of a sensitive field is not in the error."""
    frame = EVENTS.to_pandas().assign(note=["x", 1, None], thing=[object(), None, 3])
    assert nightjar.evaluate(BURST, frame, stream="transactions").events == 3
    times = [NOON, (NOON + MINUTE).replace(tzinfo=None), NOON]
    mixed = frame.assign(event_time=pd.Series(times, dtype=object))
    with pytest.raises(EventsError, match="events: event_time: has times with and without a zone"):
        nightjar.evaluate(BURST, mixed, stream="transactions", zone="UTC")
    fields = {"id": "string", "at": "timestamp", "iban": {"type": "int64", "sensitive": True}}
    streams = {"s": {"event_id": "id", "event_time": "at", "entities": ["iban"], "fields": fields}}
    rule = {**BURST, "stream": "s", "group_by": ["iban"], "measures": {"n": {"count": "*", "over": "1h"}}}
    secret = pd.DataFrame({"id": ["a", "b"], "at": [NOON, NOON], "iban": [1, "DE-SECRET"]})
    with pytest.raises(EventsError, match=r"events: iban \(object\): cannot be read") as refused:
        nightjar.evaluate(rule, secret, stream="s", streams=streams)
    assert "SECRET" not in str(refused.value)


def test_a_measure_may_be_called_as_a_column() -> None:
    """It is evaluated; a frame of both cannot be made."""
    rule = {**BURST, "measures": {"violated": {"count": "*", "over": "1h"}}, "when": "violated >= 2"}
    found = nightjar.evaluate(rule, EVENTS, stream="transactions")
    assert found.violations.height == 1
    with pytest.raises(SettingsError, match="a measure or field is called violated"):
        found.measures("burst")


@pytest.mark.parametrize("wrong", [{"when": "m >= 2"}, {"id": "Not an id", "when": "m >= 2"}])
def test_errors_can_be_pickled(wrong: dict[str, Any]) -> None:
    """They come back whole from a process of a pool."""
    with pytest.raises(nightjar.RuleError) as refused:
        nightjar.evaluate({**BURST, **wrong}, EVENTS, stream="transactions")
    for copied in (pickle.loads(pickle.dumps(refused.value)), copy.deepcopy(refused.value)):  # noqa: S301  our own
        assert str(copied) == str(refused.value)
        assert copied.problems == refused.value.problems


def test_rules_come_in_any_form(tmp_path: Path) -> None:
    """A path, the text of a file, a mapping, several, a checked rule."""
    file = tmp_path / "rules.yaml"
    file.write_text(json.dumps([BURST]))
    forms: list[Any] = [file, str(file), json.dumps(BURST) + "\n", BURST, [BURST, {**BURST, "id": "other"}]]
    for rules in (*forms, iter([BURST]), {"rules": [BURST]}, parse_rule(BURST, {"transactions": STREAM})):
        assert nightjar.evaluate(rules, EVENTS, stream="transactions").rules[0] == "burst"


def test_no_event_is_a_result_too() -> None:
    """Columns and their types are there."""
    found = nightjar.evaluate(BURST, EVENTS.slice(0, 0), stream="transactions")
    expected = nightjar.evaluate(BURST, EVENTS, stream="transactions")
    assert found.violations.schema == expected.violations.schema
    assert found.measures("burst").schema == expected.measures("burst").schema
    assert found.measures("burst").height == found.events == 0


def test_missing_values_of_pandas_are_null() -> None:
    """NaN, None and NaT of optional fields."""
    streams = {
        "logins": {
            "event_id": "id",
            "event_time": "at",
            "entities": ["user"],
            "fields": {
                "id": "string",
                "at": "timestamp",
                "user": "string",
                **{
                    name: {"type": kind, "optional": True}
                    for name, kind in (("risk", "double"), ("tries", "int64"), ("seen", "timestamp"))
                },
            },
        }
    }
    rule = {
        "id": "r",
        "stream": "logins",
        "group_by": ["user"],
        "when": "n > 0",
        "measures": {
            "n": {"count": "risk", "over": "1h"},
            "m": {"count": "tries", "over": "1h"},
            "s": {"count": "seen", "over": "1h"},
        },
    }
    at = pd.Timestamp("2026-01-05T12:00Z")
    frame = pd.DataFrame(
        {
            "id": ["a", "b"],
            "at": [at, at + pd.Timedelta(minutes=1)],
            "user": ["u", "u"],
            "risk": [float("nan"), 0.5],
            "tries": [None, 3],
            "seen": [pd.NaT, at],
        }
    )
    counted = nightjar.evaluate(rule, frame, stream="logins", streams=streams).measures("r")
    assert counted.select("n", "m", "s").rows() == [(0, 0, 0), (1, 1, 1)]


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"events": 5}, EventsError, "events: are a int"),
        ({"events": EVENTS.drop_columns(["amount"])}, EventsError, "events: has no column amount"),
        (
            {"events": pl.DataFrame(EVENTS).with_columns(amount=pl.lit("x"))},
            EventsError,
            "events: row 1: amount .*cannot be read as decimal",
        ),
        (
            {"events": pl.DataFrame(EVENTS).with_columns(transaction_id=pl.lit(""))},
            EventsError,
            "row 1: transaction_id",
        ),
        (
            {"events": pl.DataFrame(EVENTS).with_columns(pl.col("event_time").dt.replace_time_zone(None))},
            EventsError,
            "zone",
        ),
        ({"stream": "transaction"}, SettingsError, "Did you mean transactions"),
        ({"stream": "logins"}, SettingsError, "no rule is on stream logins"),
        ({"zone": "Mars"}, SettingsError, "zone: 'Mars' is not a zone"),
        ({"rules": {**BURST, "when": "m > 1"}}, RuleError, "rules: rule burst, when: unknown name 'm'"),
        ({"rules": [5]}, RuleError, "rule number 1"),
        ({"rules": Path("none.yaml")}, RuleError, "none.yaml: cannot be read"),
        ({"streams": {}}, nightjar.NightjarError, "no stream is declared"),
        ({"streams": [STREAM]}, SettingsError, "streams: are a list"),
        ({"streams": {"pay": STREAM}}, SettingsError, "streams: pay: is stream transactions"),
        ({"rules": b"id: x"}, SettingsError, "rules: are a bytes"),
        ({"rules": None}, SettingsError, "rules: are a NoneType"),
        ({"zone": 5}, SettingsError, "zone: 5 is not a zone"),
        ({"events": pl.Series([1])}, EventsError, "events: are a Series"),
        ({"events": EVENTS.to_pandas().assign(amount=[1, "x", 2])}, EventsError, "events: amount .*cannot be read"),
    ],
)
def test_a_wrong_input_is_an_error_of_ours(asked: dict[str, Any], error: type[Exception], message: str) -> None:
    """It names the place; the common base can be caught."""
    assert issubclass(error, nightjar.NightjarError)
    given = {"rules": BURST, "events": EVENTS, "stream": "transactions"} | asked
    with pytest.raises(error, match=message):
        nightjar.evaluate(given.pop("rules"), given.pop("events"), **given)


def test_a_rule_that_was_not_evaluated_has_no_measures() -> None:
    """Another id, and a paused rule."""
    found = nightjar.evaluate([BURST, {**BURST, "id": "idle", "state": "paused"}], EVENTS, stream="transactions")
    for name in ("burts", "idle"):
        with pytest.raises(SettingsError, match=f"rule {name}: was not evaluated"):
            found.measures(name)


def test_check_returns_what_the_command_prints() -> None:
    """All problems of all rules."""
    wrong = [{**BURST, "when": "m >= 2"}, {**BURST, "id": "Not an id"}]
    problems = nightjar.check(wrong)
    assert [problem.place for problem in problems] == ["rule burst, when", "rule Not an id, id"]
    assert nightjar.check(BURST) == []
    (missing,) = nightjar.check("none.yaml")
    assert str(missing).startswith("none.yaml: cannot be read")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """One payment on each side of midnight, an alert with two revisions, and a correction."""
    midnight = NOON.replace(hour=0)
    add(
        tmp_path,
        payment("t1", midnight - MINUTE),
        payment("t2", NOON, offset=1),
        payment("bad", NOON, offset=2, rejected="not_json"),
    )
    for table in (VIOLATIONS, RECONCILIATION, RUNS):
        fill(tmp_path, table)
    publish(tmp_path, BURST, at=NOON - days(30))
    group = '{"customer_id":"ann"}'
    row = {
        "alert_id": alert_id("burst", 1, "t2", microseconds(NOON), group),
        "kind": "alert",
        "rule_id": "burst",
        "rule_version": 1,
        "rule_state": "active",
        "stream": "transactions",
        "group": group,
        "event_id": "t2",
        "event_time": NOON,
        "severity": "medium",
        "text": "",
        "muted": False,
        "source": "stream",
        "emitted_at": NOON,
        "arrival_date": NOON.date(),
    }
    measures = ('{"n":2}', '{"n":3}')
    revisions = [row | {"revision": n, "measures": each, "offset": n} for n, each in enumerate(measures, 1)]
    fill(tmp_path, ALERTS, *revisions, {"offset": 9, "arrival_date": NOON.date()})  # a record of somebody else's, too
    fill(tmp_path, CORRECTIONS, row | {"day": NOON.date(), "revision": 3, "kind": "retraction", "cause": "late_events"})
    return tmp_path


def test_the_lake_is_read_by_day(lake: Path) -> None:
    """Latest revisions, all of them, corrections and events; records that are no alerts or events are left out."""
    found, streams = nightjar.Lake(lake), {"transactions": STREAM}
    for day in (NOON.date(), NOON.date().isoformat()):
        assert found.alerts(day).select("event_id", "revision").rows() == [("t2", 2)]
        assert found.corrections(day).get_column("cause").to_list() == ["late_events"]
        events = nightjar.Lake(str(lake), streams=streams).events("transactions", day).collect()
        assert events.get_column("transaction_id").to_list() == ["t2"]
    assert found.alerts(revisions=True).get_column("revision").to_list() == [1, 2]
    other = NOON.date() - timedelta(days=1)
    assert (found.alerts(other).height, found.corrections(other).height) == (0, 0)
    assert found.events("transactions").collect().columns == [*STREAM.fields, "arrival_time", "partition", "offset"]
    assert found.events("transactions").collect().height == 2


def test_an_alert_is_explained(lake: Path) -> None:
    """As the command explains it."""
    found = nightjar.Lake(lake)
    (named,) = found.alerts().get_column("alert_id")
    explained = found.explain(named)
    assert explained.event_id == "t2"
    assert not explained.violated
    with pytest.raises(nightjar.NightjarError, match="0000"):
        found.explain("0000")


@pytest.mark.parametrize("day", ["yesterday", "2026-02-30", 5, b""])
def test_what_is_no_day_is_refused(lake: Path, day: Any) -> None:
    """With how to write one."""
    with pytest.raises(SettingsError, match=r"is not a valid date\. Write it like 2026-01-05"):
        nightjar.Lake(lake).alerts(day)


def test_a_lake_that_is_not_there(tmp_path: Path) -> None:
    """Says so at once."""
    with pytest.raises(LakeError, match="there is no lake"):
        nightjar.Lake(tmp_path / "none")


CASE = """
title: {title}
streams:
  payments:
    event_id: id
    event_time: at
    entities: [customer]
    fields: {{id: string, at: timestamp, customer: string}}
steps:
  - at: 0m
    rules:
      - {{id: burst, stream: payments, group_by: [customer], when: n >= 2, measures: {{n: {{count: "*", over: 10m}}}}}}
  - at: 5m
    events:
      payments:
        - {{id: p1, at: 1m, customer: ann}}
        - {{id: p2, at: 2m, customer: ann}}
expect:
  alerts:
    - {{rule_id: burst, event_id: {expected}}}
"""


def test_a_case_is_simulated(tmp_path: Path) -> None:
    """From its text, its path, and with what differs."""
    file = tmp_path / "one.yaml"
    file.write_text(CASE.format(title="two payments", expected="p2"))
    for case in (file, str(file), file.read_text()):
        found = nightjar.simulate(case)
        assert (found.title, found.as_expected, [alert["event_id"] for alert in found.alerts]) == (
            "two payments",
            True,
            ["p2"],
        )
    wrong = nightjar.simulate(CASE.format(title="wrong", expected="p1"))
    assert not wrong.as_expected
    assert {difference.section for difference in wrong.differences} == {"alerts"}
    with pytest.raises(nightjar.NightjarError, match="cannot be read"):
        nightjar.simulate(Path("none.yaml"))
    with pytest.raises(nightjar.NightjarError, match="case: is a dict"):
        nightjar.simulate({"title": "x"})  # type: ignore[arg-type]


SUITE = """
from pathlib import Path

def test_as_expected(nightjar_case):
    assert len(nightjar_case("good.case.yaml").alerts) == 1

def test_text(nightjar_case):
    nightjar_case(Path("bad.case.yaml").read_text())
"""


@pytest.mark.slow
def test_pytest_runs_cases(tmp_path: Path) -> None:
    """Files of cases are collected, a failure shows what differs and nothing of our code, and there is a fixture."""
    (tmp_path / "good.case.yaml").write_text(CASE.format(title="good", expected="p2"))
    (tmp_path / "bad.case.yaml").write_text(CASE.format(title="bad", expected="p1"))
    (tmp_path / "broken.case.yaml").write_text("title: [")
    (tmp_path / "test_fixture.py").write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240)
    outcomes = dict(reversed(line.split(" ", 1)) for line in re.findall(r"^(?:PASSED|FAILED) \S+", ran.stdout, re.M))
    assert outcomes == {
        "good.case.yaml::good": "PASSED",
        "bad.case.yaml::bad": "FAILED",
        "broken.case.yaml::broken": "FAILED",
        "test_fixture.py::test_as_expected": "PASSED",
        "test_fixture.py::test_text": "FAILED",
    }
    assert "bad: not as expected" in ran.stdout
    assert '"event_id": "p1"' in ran.stdout
    assert "broken.case.yaml" in ran.stdout
    assert "nightjar/cases" not in ran.stdout


def test_drafts_are_tried_on_past_days(tmp_path: Path) -> None:
    """Errors come before anything starts; what is found is in tests/backfill/test_backtest.py."""
    with pytest.raises(RuleError, match="burst"):
        nightjar.backtest({**BURST, "when": "m > 1"}, "2026-01-05", "2026-01-05", lake=tmp_path)
    day = date(2026, 1, 5)
    for first, asked, message in (
        ("monday", {}, "first"),
        ("2026-01-06", {}, "last 2026-01-05: is before the first day"),
        (day, {"labels": "fraud"}, "is not a field of stream transactions"),
        (day, {"labels": pl.DataFrame({"event_id": ["t1"]})}, "labels: cannot be used"),
    ):
        with pytest.raises(SettingsError, match=message):
            nightjar.backtest(BURST, first, day, lake=tmp_path, **asked)  # type: ignore[arg-type]
    with pytest.raises(LakeError, match="there is no lake"):
        nightjar.backtest(BURST, day, day, lake=tmp_path / "none")
