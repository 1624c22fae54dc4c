"""Soak tests: long runs of the whole system and of random histories, which check that nothing is lost or wrong."""
