"""Erasing a person from the lake (S15): whose data it is, where it is, and how it is removed."""
