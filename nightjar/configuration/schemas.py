"""Builds the access to the schemas of records from the settings."""

from collections.abc import Mapping

from nightjar.configuration.settings import Settings
from nightjar.formats.decoding import check_schema
from nightjar.formats.registry import Registry
from nightjar.formats.schemas import Schemas
from nightjar.rules.errors import SettingsError
from nightjar.rules.streams import Stream

# In the lake, since what was read by them is there.
_FOLDER = "schemas"


def schemas_of(settings: Settings, streams: Mapping[str, Stream]) -> Schemas | None:
    """The schemas that the records of these streams name: kept in the lake, others from the registry. None: they name
    none.

    Raises:
        SettingsError: no registry is set.
        DeclarationError: a stream does not fit its schema file.
    """
    for stream in streams.values():
        check_schema(stream)
    naming = next((stream for stream in streams.values() if stream.encoding.uses_registry), None)
    if naming is None:
        return None
    registry = registry_of(settings)
    if registry is None:
        raise SettingsError(
            f"is empty, but the records of stream {naming.name} name schemas by their ids",
            where="schema_registry",
            remedy="Give the registry's URL, or declare a schema_file for the stream",
        )
    return Schemas(settings.lake.resolve() / _FOLDER, registry)


def registry_of(settings: Settings) -> Registry | None:
    """The schema registry, if there is one."""
    if not settings.schema_registry:
        return None
    return Registry(settings.schema_registry, settings.schema_registry_login_file, settings.schema_registry_ca_file)
