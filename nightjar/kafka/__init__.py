"""Kafka clients and topics: creating topics, access rights, reading them from outside the job."""
