"""`nightjar demo`: the whole system on this machine, and a table that must add up."""
