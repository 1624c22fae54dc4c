"""What takes minutes, which `make test` leaves to `make cluster-test`."""

import os

import pytest

long = pytest.mark.skipif("ALL_ON_CLUSTER" not in os.environ, reason="takes minutes: `make cluster-test` runs it")
