"""How an object store is reached: its endpoint, region and credentials, for every library that does so.

The credentials stay in a file of AWS's own format (`aws_access_key_id`, `aws_secret_access_key` and, for temporary
ones, `aws_session_token`), which each process reads for itself. Without such a file they come from the usual chain: the
environment, a web identity token, the role of the machine.
"""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nightjar.rules.errors import SettingsError
from nightjar.rules.names import did_you_mean

_SECRET = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
_NAMES = ("endpoint", "region", "credentials_file", "profile")
_WHERE = "storage_options"


@dataclass(frozen=True)
class Access:
    """endpoint: of a store other than AWS's; empty: AWS. region: empty: of the environment. credentials_file: empty:
    the usual chain. profile: the section of that file."""

    endpoint: str = ""
    region: str = ""
    credentials_file: str = ""
    profile: str = "default"

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Access:
        """The setting `storage_options`.

        Raises:
            SettingsError: an unknown name, or a value that cannot be used.
        """
        for name in options:
            if name not in _NAMES:
                raise _unknown(name)
        endpoint = options.get("endpoint", "")
        if endpoint and not endpoint.startswith(("http://", "https://")):
            raise SettingsError(
                f"{endpoint!r} is not a URL",
                where=f"{_WHERE}: endpoint",
                remedy="Give http://host:port or https://host:port",
            )
        return cls(**options)

    def client_options(self) -> dict[str, str]:
        """For delta-rs, Polars and obstore, which share their names. Has secrets.

        Raises:
            SettingsError: the credentials cannot be read.
        """
        found = {"aws_region": self._region}
        if self.endpoint:
            found |= {"aws_endpoint": self.endpoint, "aws_allow_http": str(self._is_plain).lower()}
        return {name: value for name, value in (found | self._credentials()).items() if value}

    def hadoop_settings(self) -> dict[str, str]:
        """For Spark's JVMs, without secrets: on a command line everybody on the machine could read them."""
        found = {"endpoint.region": self._region}
        if self.endpoint:
            found |= {
                "endpoint": self.endpoint,
                "path.style.access": "true",
                "connection.ssl.enabled": str(not self._is_plain).lower(),
            }
        if self.credentials_file:
            found["aws.credentials.provider"] = "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider"
        return {f"spark.hadoop.fs.s3a.{name}": value for name, value in found.items() if value}

    def java_options(self) -> tuple[str, ...]:
        """For Spark's JVMs: where the credentials are."""
        if not self.credentials_file:
            return ()
        return (f"-Daws.sharedCredentialsFile={self.credentials_file}", f"-Daws.profile={self.profile}")

    @property
    def _region(self) -> str:
        return self.region or ("us-east-1" if self.endpoint else "")  # other stores want one, whichever it is

    @property
    def _is_plain(self) -> bool:
        return self.endpoint.startswith("http://")

    def _credentials(self) -> dict[str, str]:
        if not self.credentials_file:
            return {}
        found = configparser.ConfigParser(interpolation=None)
        try:
            found.read_string(Path(self.credentials_file).read_text(encoding="utf-8"))
            section = found[self.profile]
        except (OSError, UnicodeDecodeError, configparser.Error, KeyError) as failure:
            # not the text of the parser's errors, which quotes lines
            why = failure.strerror if isinstance(failure, OSError) else type(failure).__name__
            raise SettingsError(
                f"the credentials cannot be read ({why})",
                where=f"{_WHERE}: credentials_file {self.credentials_file}",
                remedy=f"It has the form of AWS's own: a line [{self.profile}], then aws_access_key_id = … and "
                "aws_secret_access_key = …",
            ) from None
        return {name: section[name] for name in _SECRET if name in section}


def _unknown(name: str) -> SettingsError:
    if "key" in name or "secret" in name or "token" in name:
        remedy = "Put the keys into a file in the form of AWS's own, and name it as credentials_file"
        return SettingsError("secrets are not taken here", where=f"{_WHERE}: {name}", remedy=remedy)
    return SettingsError("unknown option", where=f"{_WHERE}: {name}", remedy=did_you_mean(name, _NAMES, "Options are"))
