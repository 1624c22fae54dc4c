"""The frames of these tests, in the session that all tests share."""

from typing import TYPE_CHECKING

import pytest

from tests.expectations.frames import Frames

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def frames(spark: "SparkSession") -> Frames:
    """Clean frames, and what one changed value makes of them."""
    return Frames(spark)
