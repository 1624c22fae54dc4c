"""The catalogue: rules against known kinds of fraud, each with its reasons and a case that shows what it finds.

Purpose: to start from a rule that works, and not from an empty file.

How it works: a file in `rules` is an entry: texts for people, the rule, and a history of events with the alerts that
they must lead to (`entries`). `streams.toml` declares the streams that rules need beside the shipped ones, and
`fields.toml` says what each field means. `adaptation` writes a rule in the names of another stream.
"""

from nightjar.catalogue.adaptation import Adaptation
from nightjar.catalogue.entries import AREAS, TAGS, Entry, catalogue, entry_named, tagged

__all__ = ["AREAS", "TAGS", "Adaptation", "Entry", "catalogue", "entry_named", "tagged"]
