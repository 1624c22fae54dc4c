"""The tasks of the nightly DAG, and the Spark session they share."""
