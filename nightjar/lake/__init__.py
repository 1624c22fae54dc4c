"""The lake's Delta tables: their schemas, the archive that fills them from Kafka, reading and writing."""
