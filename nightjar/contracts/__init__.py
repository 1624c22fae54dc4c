"""The records that cross a boundary, each defined once: its topic, its fields, its encoder and its checked decoder."""
