"""The continuous Spark job: Kafka in, alerts out."""
