"""Reads Kafka records into Spark for both the stream and the lake: sessions, sources, columnar parsing."""
