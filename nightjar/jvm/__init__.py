"""The jars that pyspark does not ship, and Spark's classes prepared for a quick start."""
