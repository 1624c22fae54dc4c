"""The tasks of the nightly DAG, and the one Spark session they share."""
