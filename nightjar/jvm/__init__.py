"""The jars that pyspark does not ship, and a class archive that shortens the start of Spark's JVM."""
