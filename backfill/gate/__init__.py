"""The stage that validates a run's inputs and results before anything is published."""
