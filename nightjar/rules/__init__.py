"""What a rule is and what it concludes: streams, rules, predicates, versions, and the engine that evaluates them.

Nothing here depends on Spark, Kafka, Airflow or Delta, so the stream and the nightly backfill run the same code.
"""
