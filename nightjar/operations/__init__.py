"""Operating the job: status, locks, waiting for progress, rebuilding the checkpoint."""
