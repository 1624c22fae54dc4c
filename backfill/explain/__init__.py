"""One alert explained: its status, why, and what its rule concludes by the lake as it is now."""
