"""Benchmarks: each prints figures as JSON lines, compared with a control if there is one."""
