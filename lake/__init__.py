"""The Delta tables: their schemas, the archive that fills them from Kafka, and how they are read and written."""
