"""Runs Kafka, Airflow and the job as processes on this machine."""
