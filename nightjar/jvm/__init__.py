"""The jars that pyspark does not ship, and the options of a class archive that shortens the start of Spark's JVM."""
