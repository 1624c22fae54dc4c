"""Parts of a time in a zone are those that its clocks show."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar.rules.errors import PredicateError
from nightjar.rules.predicates import check_predicate, compile_predicate, truths
from nightjar.rules.timestamps import EPOCH, microseconds
from nightjar.rules.types import STRING, TIMESTAMP

ZONES = ["Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Asia/Kolkata", "Australia/Lord_Howe", "UTC"]
COLUMNS = {"seen": TIMESTAMP, "at": TIMESTAMP, "time": STRING, "zone": STRING}
# Clocks of Berlin and New York are changed then.
CHANGES = [datetime(2026, month, day, hour, tzinfo=UTC) for month, day, hour in ((3, 29, 1), (10, 25, 1), (3, 8, 7))]
INSTANTS = st.one_of(
    st.timedeltas(timedelta(-70 * 365), timedelta(129 * 365)).map(lambda since: EPOCH + since),
    st.builds(datetime.__add__, st.sampled_from(CHANGES), st.timedeltas(timedelta(hours=-3), timedelta(hours=3))),
)


def holds(text: str, instant: datetime) -> bool:
    predicate = compile_predicate(text, COLUMNS)
    given_columns = {name: pl.Series([microseconds(instant)], dtype=pl.Int64) for name in ("seen", "at")}
    (found,) = truths([predicate], given_columns, 1)
    return bool(found[0])


@given(INSTANTS, st.sampled_from(ZONES))
def test_parts_are_those_of_the_clocks(instant: datetime, zone: str) -> None:
    local = instant.astimezone(ZoneInfo(zone))
    parts = {
        "YEAR": local.year,
        "MONTH": local.month,
        "DAY": local.day,
        "HOUR": local.hour,
        "MINUTE": local.minute,
        "SECOND": local.second,
        "DAYOFWEEK": local.isoweekday() % 7 + 1,
        "WEEK": local.isocalendar().week,
    }
    for part, value in parts.items():
        assert holds(f"{part}(seen AT TIME ZONE '{zone}') = {value}", instant)
    assert holds(f"EXTRACT(HOUR FROM seen at time zone '{zone}') = {local.hour}", instant)


def test_fields_may_have_the_names_of_the_words() -> None:
    noon = datetime(2026, 7, 1, 12, tzinfo=UTC)
    assert holds("HOUR(at AT TIME ZONE 'Europe/Berlin') = 14 AND HOUR(at) = 12", noon)
    check_predicate("time = zone AND HOUR(at at time zone 'UTC') < 5 AND zone = 'x'", COLUMNS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("HOUR(seen AT TIME ZONE 'Berlin') = 1", "'Berlin' is not a time zone"),
        ("HOUR(seen AT TIME ZONE 'europe/berlin') = 1", "is not a time zone"),
        ("HOUR(seen AT TIME ZONE '../../etc/passwd') = 1", "is not a time zone"),
        ("HOUR(seen AT TIME ZONE '') = 1", "is not a time zone"),
        ("HOUR(seen AT TIME ZONE zone) = 1", "its name in single quotes"),
        ("seen AT TIME ZONE 'UTC' = at", "AT TIME ZONE is for the parts of a time"),
        ("EXTRACT(EPOCH FROM seen AT TIME ZONE 'UTC') > 1", "AT TIME ZONE is for the parts of a time"),
        ("HOUR(time AT TIME ZONE 'UTC') = 1", "HOUR needs a timestamp and this is a string"),
        ("HOUR(seen AT TIME 'UTC') = 1", "its name in single quotes"),
    ],
)
def test_elsewhere_and_with_another_zone_it_is_refused(text: str, message: str) -> None:
    with pytest.raises(PredicateError) as refused:
        check_predicate(text, COLUMNS)
    assert message in str(refused.value)
