"""The constants of a rule's condition, and what other constants would have led to."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar.backfill.backtest.backtest import Draft
from nightjar.backfill.backtest.comparison import curve
from nightjar.rules.errors import RuleError
from nightjar.rules.model import Rule, parse_rule
from nightjar.rules.streams import load_streams
from nightjar.rules.thresholds import Threshold, threshold_of, thresholds_of
from nightjar.rules.truth import Truth
from nightjar.rules.versions import RuleSet, RuleVersion

STREAM = load_streams()["transactions"]
START = datetime(2026, 1, 5, tzinfo=UTC)


def rule(when: str) -> Rule:
    """A rule by customer with a sum and a count over an hour."""
    measures = {"spent": {"sum": "amount", "over": "1h"}, "n": {"count": "*", "over": "1h"}}
    written = {"id": "a", "stream": STREAM.name, "group_by": ["customer_id"], "measures": measures, "when": when}
    return parse_rule(written, {STREAM.name: STREAM})


@pytest.mark.parametrize(
    ("when", "found"),
    [
        ("spent > 500", [("spent", ">", "500", "spent IS NOT NULL")]),
        (
            "(spent >= 5.50 AND (n<3)) AND LENGTH(terminal_id) = 2",
            [
                ("spent", ">=", "5.50", "(spent IS NOT NULL AND (n<3)) AND LENGTH(terminal_id) = 2"),
                ("n", "<", "3", "(spent >= 5.50 AND (n IS NOT NULL)) AND LENGTH(terminal_id) = 2"),
            ],
        ),
        ("-5 <= amount", [("amount", ">=", "-5", "amount IS NOT NULL")]),
        ("spent > 500 OR n > 3", []),
        ("NOT spent > 500", []),
        ("spent > 4 * n AND n = 3", []),
    ],
)
def test_comparisons_that_the_condition_depends_on(when: str, found: list[tuple[str, str, str, str]]) -> None:
    """Those joined by AND, with the name on the left."""
    expected = [Threshold(name, operator, Decimal(value), without) for name, operator, value, without in found]
    assert thresholds_of(rule(when), STREAM) == expected


@pytest.mark.parametrize("when", ["n > 3", "spent > 500 AND spent < 600", "spent > 500 OR n > 3"])
def test_threshold_that_is_none_is_refused(when: str) -> None:
    """With the names that would do."""
    with pytest.raises(RuleError, match=r"spent is .*compared with .*This condition has: (n|none|spent)$"):
        threshold_of(rule(when), STREAM, "spent")


def violations(version: RuleVersion, events: pa.Table) -> pl.DataFrame:
    """What the rule concludes about the events."""
    return pl.DataFrame(Truth(STREAM, RuleSet((version,)), events).violations())


@given(
    amounts=st.lists(st.integers(1, 12), min_size=1, max_size=30),
    operator=st.sampled_from(["<", "<=", ">", ">="]),
    name=st.sampled_from(["spent", "n", "amount"]),
)
def test_curve_counts_what_other_constants_lead_to(amounts: list[int], operator: str, name: str) -> None:
    """Each point of a curve is what the rule with that constant announces."""
    count = len(amounts)
    events = pa.table(
        {
            "transaction_id": [f"e{number}" for number in range(count)],
            "event_time": [START + timedelta(minutes=7 * number) for number in range(count)],
            "customer_id": [f"c{number % 3}" for number in range(count)],
            "terminal_id": ["t"] * count,
            "amount": [Decimal(amount) for amount in amounts],
        },
        schema=STREAM.schema,
    )
    tried = rule(f"{name} {operator} 5 AND n < 4")
    draft = Draft(tried, threshold_of(tried, STREAM, name) if name != "n" else thresholds_of(tried, STREAM)[0])
    assert draft.threshold is not None
    of_any = violations(draft.trials[1], events)
    found = curve(of_any.lazy(), draft.threshold, draft.measure, days=1)
    for point in found.points:
        constant = rule(f"{name} {operator} {point.threshold:.2f} AND n < 4")
        assert violations(RuleVersion(constant, 1, 0), events).height == point.alerts
    alerts = [point.alerts for point in found.points]
    assert alerts == sorted(alerts)
    for target, point in found.targets.items():
        assert point is None or point.alerts <= target


def test_a_rule_that_starts_again_after_alerts_has_no_threshold_to_vary() -> None:
    """With another constant its measures would be others."""
    with pytest.raises(RuleError, match="depend on the threshold"):
        threshold_of(rule("spent > 5").model_copy(update={"reset_after_alert": True}), STREAM, "spent")
