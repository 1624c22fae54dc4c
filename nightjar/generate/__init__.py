"""A seeded simulator of cardholders, terminals and logins, with fraud whose truth is known.

`generate(Options(...))` gives one Arrow table a stream: the fields of the shipped declaration plus `scenario`, the
truth (null: genuine). Everything is drawn with NumPy in whole columns from one seed, so the same options give the same
bytes.
"""

from nightjar.generate.scenarios import Scenario
from nightjar.generate.simulator import Options, generate

__all__ = ["Options", "Scenario", "generate"]
