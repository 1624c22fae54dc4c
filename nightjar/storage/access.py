"""How the objects of a bucket are reached: what every kind of store has in common.

A kind of store is a subclass of `Access`, which a URL's scheme chooses (`paths.py`). Its options name hosts and files,
never secrets: options are passed on command lines and shipped to tasks. Credentials stay in a file that each process
reads for itself; without one they come from the store's usual chain, such as the environment or the machine's role.
"""

from __future__ import annotations

import configparser
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from nightjar.rules.errors import SettingsError
from nightjar.rules.names import did_you_mean

if TYPE_CHECKING:
    import re

    from obstore.store import AzureStore, GCSStore, S3Store

OPTIONS = "storage_options"
_SECRET_PARTS = ("key", "secret", "token", "password")


@dataclass(frozen=True)
class Access(ABC):
    """bucket: what stands between a URL's scheme and its folder. endpoint: of a store other than the provider's own,
    such as an emulator; empty: the provider's. credentials_file: empty: the usual chain."""

    bucket: str
    endpoint: str = ""
    credentials_file: str = ""

    schemes: ClassVar[tuple[str, ...]]
    """Of its URLs; the first is the one that delta-rs and Polars use."""
    form: ClassVar[str]
    """What follows the scheme in a URL, for people."""
    bucket_pattern: ClassVar[re.Pattern[str]]
    jars: ClassVar[str]
    """The set of jars that Spark needs besides its own."""
    checkpoint_manager: ClassVar[str | None] = None
    """Spark's class that writes the files of a checkpoint; None: by renaming, Spark's default."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The names of its options."""
        return tuple(each.name for each in fields(cls) if each.name != "bucket")

    @classmethod
    def of(cls, bucket: str, options: Mapping[str, str]) -> Self:
        """With the setting `storage_options`.

        Raises:
            SettingsError: an unknown name, or a value that cannot be used.
        """
        for name in options:
            if name not in cls.names():
                raise unknown_option(name, cls.names(), f"for {cls.schemes[0]}://")
        endpoint = options.get("endpoint", "")
        if endpoint and not endpoint.startswith(("http://", "https://")):
            raise SettingsError(
                f"{endpoint!r} is not a URL",
                where=f"{OPTIONS}: endpoint",
                remedy="Give http://host:port or https://host:port",
            )
        return cls(bucket, **options)

    @property
    def root(self) -> str:
        """The bucket's URL, for delta-rs and Polars."""
        return f"{self.schemes[0]}://{self.bucket}"

    @property
    def hadoop_root(self) -> str:
        """The bucket's URL, for Spark."""
        return self.root

    @abstractmethod
    def client(self) -> S3Store | AzureStore | GCSStore:
        """A client of the bucket.

        Raises:
            SettingsError: the credentials cannot be read.
        """

    @abstractmethod
    def client_options(self) -> dict[str, str]:
        """For delta-rs, Polars and obstore, which share their names. Has secrets.

        Raises:
            SettingsError: the credentials cannot be read.
        """

    @abstractmethod
    def hadoop_settings(self) -> dict[str, str]:
        """For Spark's JVMs, without secrets: on a command line everybody on the machine could read them.

        Raises:
            SettingsError: the credentials cannot be read.
        """

    def hadoop_secrets(self) -> dict[str, str]:
        """Hadoop's settings that are secret, for a session once it runs; it sends them to its executors itself.

        Raises:
            SettingsError: the credentials cannot be read.
        """
        return {}

    def java_options(self) -> tuple[str, ...]:
        """For Spark's JVMs: where the credentials are."""
        return ()

    @property
    def is_plain(self) -> bool:
        """Whether requests go over HTTP without TLS."""
        return self.endpoint.startswith("http://")


def unknown_option(name: str, names: Collection[str], where_not: str) -> SettingsError:
    """The error for an option that there is not."""
    where = f"{OPTIONS}: {name}"
    if any(part in name.lower() for part in _SECRET_PARTS):
        remedy = "Put secrets into a file of their own, readable by its user only, and name it as credentials_file"
        return SettingsError("secrets are not taken here", where=where, remedy=remedy)
    return SettingsError(f"unknown option {where_not}", where=where, remedy=did_you_mean(name, names, "Options are"))


def section_of(file: str, profile: str, remedy: str) -> Mapping[str, str]:
    """A section of a file of credentials with lines `name = value`. Has secrets.

    Raises:
        SettingsError: it cannot be read; nothing of its content is in the message.
    """
    found = configparser.ConfigParser(interpolation=None)
    try:
        found.read_string(Path(file).read_text(encoding="utf-8"))
        return found[profile]
    except (OSError, UnicodeDecodeError, configparser.Error, KeyError) as failure:
        raise unreadable(file, failure, remedy) from None


def unreadable(file: str, failure: Exception, remedy: str) -> SettingsError:
    """The error for a file of credentials; without the text of a parser's error, which quotes lines."""
    why = failure.strerror if isinstance(failure, OSError) else type(failure).__name__
    return SettingsError(
        f"the credentials cannot be read ({why})", where=f"{OPTIONS}: credentials_file {file}", remedy=remedy
    )
