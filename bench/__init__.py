"""Benchmarks: each prints figures as JSON lines, beside a control where there is one."""
