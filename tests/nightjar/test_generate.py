"""The simulator: the declared fields, the same bytes from the same seed, and fraud that looks like its label."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nightjar.files.event_files import read_events
from nightjar.generate import Options, Scenario, generate
from nightjar.rules.errors import SettingsError
from nightjar.rules.streams import load_streams
from tests.support.command import run

SMALL = Options(events=20_000, days=4, customers=800, terminals=300, fraud=0.02, seed=7)


@pytest.fixture(scope="module")
def tables() -> dict[str, pa.Table]:
    return generate(SMALL)


@pytest.fixture(scope="module")
def payments(tables: dict[str, pa.Table]) -> pl.DataFrame:
    return pl.DataFrame(tables["transactions"])


@pytest.fixture(scope="module")
def logins(tables: dict[str, pa.Table]) -> pl.DataFrame:
    return pl.DataFrame(tables["logins"])


@pytest.mark.parametrize("name", ["transactions", "logins"])
def test_fields_are_as_declared_plus_the_label(tables: dict[str, pa.Table], name: str) -> None:
    """A generated file has the stream's fields in order, then `scenario`."""
    declared = load_streams()[name].schema
    assert tables[name].schema.equals(declared.append(pa.field("scenario", pa.string())))
    assert all(tables[name][field].null_count == 0 for field in declared.names)


def test_number_and_span_are_as_asked(payments: pl.DataFrame) -> None:
    """As many payments as asked for, within the days asked for, ids unique and ascending with time."""
    begin = datetime(2026, 1, 5, tzinfo=UTC)
    assert payments.height == 20_000
    assert payments["event_time"].min() >= begin
    assert payments["event_time"].max() < begin + timedelta(days=4)
    assert payments["event_time"].is_sorted()
    assert payments["transaction_id"].is_sorted()
    assert payments["transaction_id"].n_unique() == 20_000


@pytest.mark.slow
def test_same_seed_same_bytes(tmp_path: Path) -> None:
    """Two runs with one seed write the same files; another seed other ones."""
    for folder, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        run("generate", "--out", str(tmp_path / folder), "--events", "3000", "--customers", "100", "--seed", seed)
    for name in ("transactions.parquet", "logins.parquet"):
        first, again, other = ((tmp_path / folder / name).read_bytes() for folder in "abc")
        assert first == again
        assert first != other


def test_a_prefix_makes_ids_of_their_own(tables: dict[str, pa.Table]) -> None:
    """Events of two prefixes share no id, and are otherwise the same."""
    again = generate(replace(SMALL, prefix="again-"))
    for name, identity in (("transactions", "transaction_id"), ("logins", "login_id")):
        first, second = pl.DataFrame(tables[name]), pl.DataFrame(again[name])
        assert second[identity].equals("again-" + first[identity])
        assert second.drop(identity).equals(first.drop(identity))


def test_share_of_fraud_is_as_asked(payments: pl.DataFrame) -> None:
    """About a fiftieth is fraud, and every scenario has its part."""
    share = dict(payments.group_by("scenario").len().iter_rows())
    assert sum(share[scenario] for scenario in Scenario) == pytest.approx(400, rel=0.3)
    assert all(share[scenario] > 50 for scenario in Scenario)


def test_days_have_a_rhythm(payments: pl.DataFrame) -> None:
    """At four in the morning hardly anybody pays, at seven in the evening many do."""
    hours = dict(payments.group_by(pl.col("event_time").dt.hour()).len().iter_rows())
    assert hours[19] > 5 * hours[4]


def test_customers_have_their_places_and_amounts(payments: pl.DataFrame) -> None:
    """A customer uses a few terminals mostly, and amounts differ between customers more than by chance."""
    genuine = payments.filter(pl.col("scenario").is_null())
    habits = genuine.group_by("customer_id").agg(
        pl.len(), pl.col("terminal_id").n_unique().alias("places"), pl.col("amount").cast(float).median().alias("usual")
    )
    busy = habits.filter(pl.col("len") >= 30)
    assert busy["places"].median() <= 14
    assert busy["usual"].quantile(0.9) > 2.5 * busy["usual"].quantile(0.1)


def test_cloned_cards_are_used_in_bursts(payments: pl.DataFrame) -> None:
    """Each cloned card has five or more payments within 40 minutes, at several terminals."""
    bursts = (
        payments.filter(pl.col("scenario") == Scenario.CLONED_CARD)
        .rolling("event_time", period="40m", group_by="customer_id")
        .agg(pl.len(), pl.col("terminal_id").n_unique().alias("places"))
    )
    biggest = bursts.group_by("customer_id").agg(pl.col("len").max(), pl.col("places").max())
    assert biggest["len"].min() >= 5
    assert biggest["places"].min() >= 3


def test_compromised_terminals_take_many_cards(payments: pl.DataFrame) -> None:
    """At a compromised terminal two dozen different customers pay just under 100 within four hours."""
    taken = payments.filter(pl.col("scenario") == Scenario.COMPROMISED_TERMINAL)
    assert taken["amount"].cast(float).is_between(80, 100).all()
    assert taken.group_by("terminal_id").agg(pl.col("customer_id").n_unique())["customer_id"].min() >= 20


def test_account_takeovers_fail_then_succeed_then_spend(payments: pl.DataFrame, logins: pl.DataFrame) -> None:
    """From an address nobody else has: six or more failures, one success, and payments of that customer soon after."""
    for (address,), attempts in logins.filter(pl.col("scenario").is_not_null()).group_by("ip"):
        assert logins.filter(pl.col("ip") == address).height == attempts.height
        assert attempts["status"].to_list() == ["FAIL"] * (attempts.height - 1) + ["SUCCESS"]
        assert attempts.height >= 7
        inside = attempts["event_time"][-1]
        spent = payments.filter(
            pl.col("customer_id") == attempts["customer_id"][0],
            pl.col("scenario") == Scenario.ACCOUNT_TAKEOVER,
            pl.col("event_time").is_between(inside, inside + timedelta(minutes=30)),
        )
        assert spent.height >= 2


def test_generated_files_are_read_as_events(tmp_path: Path) -> None:
    """The label does not get in the way of the stream's declaration."""
    written = run("generate", "--out", str(tmp_path), "--events", "500", "--customers", "50", "--json")
    stream = load_streams()["logins"]
    path = tmp_path / "logins.parquet"
    assert read_events(path, stream).schema.equals(stream.schema)
    assert json.loads(written.stdout)["logins"]["events"] == pq.read_metadata(path).num_rows


@pytest.mark.parametrize("option", [{"events": 0}, {"days": 0}, {"fraud": 0.7}, {"customers": 0}, {"logins": -1}])
def test_impossible_options_are_refused(option: dict[str, float]) -> None:
    """The message names the option and the range."""
    (name,) = option
    with pytest.raises(SettingsError, match=f"{name}: .* is out of range. Choose"):
        Options(**option)


@pytest.mark.parametrize("options", [Options(events=1, customers=1, terminals=1), Options(events=300, days=1, fraud=0)])
def test_tiny_worlds_work(options: Options) -> None:
    """One customer at one terminal is a world, and so is one without fraud."""
    made = generate(options)
    assert made["transactions"].num_rows == options.events
    assert made["transactions"]["scenario"].null_count == options.events
