"""The settings, and the configuration of each part of the system derived from them."""
