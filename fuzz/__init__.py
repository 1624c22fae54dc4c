"""Hostile events, rules and records, against the parser, the job and the night."""
