"""`nightjar demo`: runs the whole system on this machine and checks its results against the truth."""
