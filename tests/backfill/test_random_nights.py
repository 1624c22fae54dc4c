"""A few random runs of the job over several days, with their nights; `python -m checks.soak.nights` has many of
them."""

import pytest

from tests.support.random_nights import RandomNights, drawn_nights


@pytest.mark.parametrize("number", [1])
def test_after_nights_in_any_order_the_alerts_are_the_truth(number: int) -> None:
    """S9: whichever days were run when, whole or in part, killed or dry, and whatever upkeep did between."""
    nights = 0
    for run, seed in drawn_nights(number, 4):
        judged = RandomNights(run, seed)
        assert not judged.complaints, (seed, judged.complaints)
        nights += judged.counts["nights"]
    assert nights > 20
