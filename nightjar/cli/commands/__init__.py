"""The subcommands, one file each.

A file has a function `register(app)` that adds its command, and imports nothing heavy at its top: `nightjar --help`
imports them all. `nightjar/cli/app.py` lists them.
"""
