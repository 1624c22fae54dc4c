"""`nightjar rules check` with rates: given, from a file, or from the lake."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from nightjar.configuration.settings import Settings
from nightjar.operations.retention import estimates
from nightjar.rules.model import parse_rule
from nightjar.rules.types import TIMESTAMP
from tests.support.command import run
from tests.support.lakes import STREAM, config_of, publish

RULE = """
id: usual
stream: transactions
group_by: [customer_id]
measures:
  usual: {avg: amount, over: 30d}
when: "amount > 10 * usual"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A rule with a window of 30 days."""
    path = tmp_path / "usual.yaml"
    path.write_text(RULE)
    return path


@pytest.mark.slow
def test_without_rates_nothing_is_estimated(file: Path, tmp_path: Path) -> None:
    """Nothing needs to run for a check."""
    assert "retains" not in run("rules", "check", str(file), folder=tmp_path).stdout


@pytest.mark.slow
def test_given_rates(file: Path, tmp_path: Path) -> None:
    """From the command line, or a file of them."""
    rates = tmp_path / "rates.toml"
    rates.write_text("transactions = 2000\n")
    by_option = run("rules", "check", str(file), "--rate", "transactions=1000", folder=tmp_path).stdout
    assert "usual retains about 30,000 events" in by_option
    by_file = run("rules", "check", str(file), "--rates", str(rates), folder=tmp_path).stdout
    assert "usual retains about 60,000 events" in by_file
    many = run("rules", "check", str(file), "--rate", "transactions=2e6", code=2, folder=tmp_path)
    assert "60,000,000 events" in many.stderr
    assert many.stdout == ""
    raised = {"NIGHTJAR_MAX_RETAINED_EVENTS": "60000000"}
    run("rules", "check", str(file), "--rate", "transactions=2e6", folder=tmp_path, environment=raised)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "message"),
    [("transaction=1", "Did you mean transactions?"), ("transactions", "''"), ("transactions=-1", "'-1'")]
    + [(f"transactions={text}", "is not a number") for text in ("nan", "inf", "9" * 400, "many")],
)
def test_a_rate_that_is_not_one_is_refused(file: Path, tmp_path: Path, rate: str, message: str) -> None:
    """With the stream it is for."""
    assert message in run("rules", "check", str(file), "--rate", rate, code=2, folder=tmp_path).stderr


def test_rules_retain_what_others_need_that_they_depend_on(tmp_path: Path) -> None:
    """Of the same file, or published as far as the lake knows: what is silenced retains the windows of the allow rule,
    and what counts alerts those of the rules that have them."""
    window = {"measures": {"n": {"count": "*", "over": "3d"}}, "when": "n > 0"}
    common = {"stream": STREAM.name, "group_by": ["customer_id"]}
    allow = {
        "id": "known",
        **common,
        "allows": ["*"],
        "measures": {"n": {"count": "*", "over": "20d"}},
        "when": "n > 9",
    }
    large = {"id": "large", **common, **window}
    over = {"count": "*", "over": "2d", "over_alerts": ["large"]}
    points = {"id": "points", **common, "measures": {"n": over}, "when": "n > 1"}
    streams = {STREAM.name: STREAM}
    lakes = [config_of(tmp_path / name) for name in ("none", "one", "two")]
    publish(lakes[1], large)
    publish(lakes[2], large, allow)

    def retained(lake: int, *rules: dict[str, Any]) -> dict[str, int]:
        settings, parsed = Settings(lake_dir=str(lakes[lake].lake.root)), [parse_rule(rule, streams) for rule in rules]
        found = estimates(settings, streams, parsed, {STREAM.name: 100.0}, where="here")
        return {rule_id: estimate.retained for rule_id, estimate in found.items()}

    assert retained(0, points) == {"points": 200}
    assert retained(0, large, points) == {"large": 300, "points": 500}
    assert retained(1, points) == {"points": 500}
    assert retained(2, points) == {"points": 2000}


@pytest.mark.slow
def test_rates_of_the_lake(file: Path, tmp_path: Path) -> None:
    """The busiest of the last seven days, from the Delta log alone."""
    first = datetime(2026, 1, 1, tzinfo=UTC)
    for day in range(9):
        rows = 100 if day == 0 else day
        arrived = pa.array([first + timedelta(days=day)] * rows, TIMESTAMP.arrow)
        table = pa.table({"arrival_time": arrived, "arrival_date": arrived.cast(pa.date32())})
        write_deltalake(
            str(tmp_path / "lake" / "events_transactions"), table, partition_by=["arrival_date"], mode="append"
        )
    given = {"NIGHTJAR_LAKE_DIR": str(tmp_path / "lake")}
    assert (
        "about 240 events"
        in run("rules", "check", "--no-preview", str(file), folder=tmp_path, environment=given).stdout
    )
