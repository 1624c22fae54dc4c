"""The stages of a run, in order. Imports nothing heavy: the DAG and its tasks import it."""

# Descriptions of the stages, for display.
DOES = {
    "archive": "what is new on Kafka, to the lake",
    "evaluate": "the groups that the day's events touch, by the stream's own engine",
    "gate": "what must hold of events and violations before anything is published",
    "reconcile": "the stream's alerts compared with the truth, and the causes of differences",
    "publish": "corrections to Kafka, results to their tables",
}
STAGES = tuple(DOES)
