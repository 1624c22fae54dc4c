"""The command line: commands, and what they show a person."""
