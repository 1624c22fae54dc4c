"""Reads files that hold a secret: their owner alone may be able to read them."""

import os
import stat
from pathlib import Path

from nightjar.rules.errors import SettingsError


def private_text(file: Path, setting: str, holds: str) -> str:
    """The text of a file without space around it. setting: what names the file; holds: what is in it, for errors.

    Raises:
        SettingsError: the file cannot be read, or others can read it. No message has any of its content.
    """
    where = f"{setting}: {file}"
    try:
        with file.open(encoding="utf-8") as opened:
            about = os.fstat(opened.fileno())
            text = opened.read().strip()
    except (OSError, UnicodeDecodeError) as failure:
        why = getattr(failure, "strerror", None) or "it is not text"
        raise SettingsError(f"cannot be read ({why})", where=where, remedy=f"Name a file with {holds}") from None
    # As libpq has it for keys: a file of root's may belong to a group, as those that Kubernetes mounts do.
    others = stat.S_IRWXO | (stat.S_IWGRP if about.st_uid == 0 else stat.S_IRWXG)
    if about.st_mode & others:
        raise SettingsError(f"others can read it, and it holds {holds}", where=where, remedy="Run chmod 600 on it")
    return text
