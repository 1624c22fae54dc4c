"""What the job keeps: the checkpoint's metadata, and each bucket's durable state."""
