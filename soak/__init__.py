"""Long runs of the whole system, and of random histories: nothing lost, nothing wrong."""
