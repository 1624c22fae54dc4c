"""Who may have signed the certificate of a target's server."""

import ssl
from pathlib import Path

from nightjar.rules.errors import SettingsError


def trusting(file: Path | None) -> ssl.SSLContext:
    """A client's context that trusts the authorities in a file of PEM; None: the usual ones of this machine.

    Raises:
        SettingsError: the file cannot be used.
    """
    try:
        return ssl.create_default_context(cafile=file)
    except OSError as failure:
        why = failure.strerror or type(failure).__name__
        remedy = "Name a file of certificates in PEM"
        raise SettingsError(f"cannot be used ({why})", where=f"ca_file: {file}", remedy=remedy) from None
