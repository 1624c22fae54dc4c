"""`nightjar rules check` with rates: given, from a file, or from the lake."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from nightjar.rules.types import TIMESTAMP
from tests.support.command import run

pytestmark = pytest.mark.slow  # each starts the command line

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


def test_without_rates_nothing_is_estimated(file: Path, tmp_path: Path) -> None:
    """Nothing needs to run for a check."""
    assert "retains" not in run("rules", "check", str(file), folder=tmp_path).stdout


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


@pytest.mark.parametrize(
    ("rate", "message"),
    [("transaction=1", "Did you mean transactions?"), ("transactions", "''"), ("transactions=-1", "'-1'")]
    + [(f"transactions={text}", "is not a number") for text in ("nan", "inf", "9" * 400, "many")],
)
def test_a_rate_that_is_not_one_is_refused(file: Path, tmp_path: Path, rate: str, message: str) -> None:
    """With the stream it is for."""
    assert message in run("rules", "check", str(file), "--rate", rate, code=2, folder=tmp_path).stderr


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
