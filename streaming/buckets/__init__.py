"""The tasks' side of the job: records packed into buckets, and each bucket's engine in an engine process."""
