"""What a rule is and what it concludes: streams, rules, predicates, versions, and the engine that evaluates them.

Nothing here knows Spark, Kafka, Airflow or Delta, so that the stream and the nightly backfill share this code as it is.
"""
