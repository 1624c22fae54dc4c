"""S9.1 on histories as production has them: many events, hot groups, state that grows after parts of it have gone."""

from hypothesis import HealthCheck, given, settings

from tests.support.large_histories import LargeHistory, differences, large_histories


@settings(max_examples=settings().max_examples // 4, suppress_health_check=[HealthCheck.too_slow])
@given(large_histories(3_000))
def test_the_stream_ends_at_the_truth_of_a_large_history(history: LargeHistory) -> None:
    """However large blocks are, when rows are evicted, windows carried, arrays moved, and everything restored."""
    assert [*differences(history)][:3] == []
