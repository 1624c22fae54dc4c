"""Time zones by name."""

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from nightjar.rules.errors import SettingsError


def zone_named(name: str | None, where: str) -> ZoneInfo | None:
    """The zone of this name; None: none. where: the option or parameter.

    Raises:
        SettingsError: there is none.
    """
    try:
        return None if name is None else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError):
        raise SettingsError(
            f"{name!r} is not a zone", where=where, remedy="Give a name as in UTC, Europe/Berlin or Asia/Tokyo"
        ) from None
