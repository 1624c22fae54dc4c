"""Running the job: its status, locks, waiting for it, rebuilding its checkpoint."""
