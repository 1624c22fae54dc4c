"""Metrics for Prometheus: of the job, of what it publishes, of the lake and its nights.

They are collected from Kafka and the lake by a process of its own (`nightjar metrics`), so that a job that has died is
still reported on.
"""
