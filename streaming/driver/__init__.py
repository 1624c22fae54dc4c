"""The driver's side of the job: session, query, answers to rule messages, clock, progress, failures."""
