"""Parts of a time in a zone are those that its clocks show."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar.rules.errors import PredicateError
from nightjar.rules.predicates import check_predicate, compile_predicate, truths
from nightjar.rules.predicates.zones import is_zone
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
    check_predicate("HOUR(at at time zone zone) = 1 AND HOUR(at AT TIME ZONE COALESCE(zone, 'UTC')) = 2", COLUMNS)
    check_predicate("time = zone AND HOUR(at at time zone 'UTC') < 5 AND zone = 'x'", COLUMNS)


@given(st.lists(st.tuples(INSTANTS, st.sampled_from([*ZONES, "Berlin", "", "europe/berlin"])), min_size=1, max_size=9))
def test_a_field_may_name_the_zone(rows: list[tuple[datetime, str]]) -> None:
    """Each event is read by the clocks of its own zone; where a name is that of no zone there is no hour."""
    predicates = [compile_predicate(f"HOUR(seen AT TIME ZONE zone) = {hour}", COLUMNS) for hour in range(24)]
    columns = {
        "seen": pl.Series([microseconds(instant) for instant, _ in rows], dtype=pl.Int64),
        "zone": pl.Series([zone for _, zone in rows], dtype=pl.String),
    }
    by_row = zip(*truths(predicates, columns, len(rows)), strict=True)
    found = [[hour for hour, holds in enumerate(of_row) if holds] for of_row in by_row]
    assert found == [[instant.astimezone(ZoneInfo(zone)).hour] if zone in ZONES else [] for instant, zone in rows]


def test_zones_of_a_field_may_be_many() -> None:
    """A batch may hold every zone there is."""
    names = sorted(name for name in available_timezones() if is_zone(name))
    assert len(names) > 400
    columns = {
        "seen": pl.Series([microseconds(CHANGES[0])] * len(names), dtype=pl.Int64),
        "zone": pl.Series(names, dtype=pl.String),
    }
    (found,) = truths([compile_predicate("HOUR(seen AT TIME ZONE zone) >= 0", COLUMNS)], columns, len(names))
    assert found.all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("HOUR(seen AT TIME ZONE 'Berlin') = 1", "'Berlin' is not a time zone"),
        ("HOUR(seen AT TIME ZONE 'europe/berlin') = 1", "is not a time zone"),
        ("HOUR(seen AT TIME ZONE '../../etc/passwd') = 1", "is not a time zone"),
        ("HOUR(seen AT TIME ZONE '') = 1", "is not a time zone"),
        ("HOUR(seen AT TIME ZONE Berlin) = 1", "unknown name 'Berlin'"),
        ("HOUR(seen AT TIME ZONE at) = 1", "the name of a time zone is needed and this is a timestamp"),
        ("HOUR(seen AT TIME ZONE 5) = 1", "in single quotes or a field"),
        ("HOUR(seen AT TIME ZONE) = 1", "in single quotes or a field"),
        ("seen AT TIME ZONE zone = at", "AT TIME ZONE is for the parts of a time"),
        ("seen AT TIME ZONE 'UTC' = at", "AT TIME ZONE is for the parts of a time"),
        ("EXTRACT(EPOCH FROM seen AT TIME ZONE 'UTC') > 1", "AT TIME ZONE is for the parts of a time"),
        ("HOUR(time AT TIME ZONE 'UTC') = 1", "HOUR needs a timestamp and this is a string"),
        ("HOUR(seen AT TIME 'UTC') = 1", "in single quotes or a field"),
    ],
)
def test_elsewhere_and_with_another_zone_it_is_refused(text: str, message: str) -> None:
    with pytest.raises(PredicateError) as refused:
        check_predicate(text, COLUMNS)
    assert message in str(refused.value)
