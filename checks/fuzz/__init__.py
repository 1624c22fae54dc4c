"""Fuzz tests: hostile events, rules and records for the parser, the job and the backfill."""
