"""A seeded simulator of card payments and logins with labelled fraud.

`generate(Options(...))` returns one Arrow table per stream: the fields of the shipped declaration plus `scenario`, the
ground truth (null: genuine). Whole columns are drawn with NumPy from one seed, so the same options give the same bytes.
"""

from nightjar.generate.scenarios import Scenario
from nightjar.generate.simulator import Options, generate

__all__ = ["Options", "Scenario", "generate"]
