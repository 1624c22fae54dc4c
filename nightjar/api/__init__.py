"""The public Python API, as `import nightjar` offers it; docs/reference/python.md describes it.

The commands call what these modules call, so that a figure in a notebook is that of the command.
"""
