"""Reads files of events as their stream declares them, and evaluates rules over them."""
