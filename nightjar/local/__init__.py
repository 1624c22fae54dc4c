"""Runs Kafka and the job as processes on this machine."""
