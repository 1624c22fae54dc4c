"""How records are written: what their bytes hold, by the schema that they were written with."""
