"""Great Expectations comes without what nobody here looks into."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from nightjar.expectations import library
library.load()
print(sorted({"great_expectations", "altair.vegalite", "scipy.stats.distributions"} & sys.modules.keys()))
import scipy.stats, altair
print(scipy.stats.norm.cdf(0), altair.Chart.__name__)
"""


@pytest.mark.slow
def test_what_is_rarely_used_is_executed_when_it_is_used() -> None:
    """A program of its own, since others have imported everything; what is put off works once somebody needs it."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines() == ["['great_expectations']", "0.5 Chart"]
