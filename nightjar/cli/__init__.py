"""The command line: its commands."""
