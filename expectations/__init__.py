"""Great Expectations: what must hold of the lake and of a run before anything is published."""
