"""The subcommands, one file each.

Each file has a function `register(app)` that adds its command. No file imports anything heavy at the top, because
`nightjar --help` imports them all. `nightjar/cli/app.py` lists them.
"""
