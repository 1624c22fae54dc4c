"""Kafka records into Spark, for the stream and the lake alike: sessions, sources, and typed events by columns."""
