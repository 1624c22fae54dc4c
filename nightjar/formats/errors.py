"""What goes wrong when records are read by a schema."""

from __future__ import annotations

from nightjar.rules.errors import NightjarError


class SchemaError(NightjarError):
    """A schema cannot be used."""


class RegistryError(NightjarError):
    """The schema registry cannot be asked."""


class CompilerError(NightjarError):
    """A schema could not be compiled, for a reason that is not its own; trying again may help."""


class UndecodableError(Exception):
    """A record is not what its schema says; the text: why, without its values."""
