"""One alert explained: how it stands, why, and what its rule concludes by the lake as it is now."""
