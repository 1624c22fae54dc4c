"""Alerts below a micro-batch: the engine process that Spark's real-time tasks send their records to."""
