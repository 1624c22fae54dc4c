"""Settings, and what each part of the system is told of them."""
