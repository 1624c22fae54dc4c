"""Google Cloud Storage.

The file of credentials is the key of a service account as Google issues it (JSON). Without it they come from the file
that `GOOGLE_APPLICATION_CREDENTIALS` names, gcloud's own, or the machine's or workload's service account.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from nightjar.rules.errors import SettingsError
from nightjar.storage.access import OPTIONS, Access, unreadable

if TYPE_CHECKING:
    from obstore.store import GCSStore

_REMEDY = "It is the key of a service account, as `gcloud iam service-accounts keys create FILE` writes it"
_CONNECTOR = "com.google.cloud.hadoop.fs.gcs"
# Hadoop has defaults for its own file system of the same name, with units that Google's does not read.
_SIZES = {
    "block.size": 64 << 20,
    "inputstream.inplace.seek.limit": 8 << 20,
    "inputstream.min.range.request.size": 2 << 20,
    "outputstream.buffer.size": 8 << 20,
    "rewrite.max.chunk.size": 512 << 20,
}


@dataclass(frozen=True)
class GoogleAccess(Access):
    """Nothing beside the file of the key, and the endpoint of an emulator."""

    schemes: ClassVar[tuple[str, ...]] = ("gs",)
    form: ClassVar[str] = "bucket/folder"
    bucket_pattern: ClassVar[re.Pattern[str]] = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
    jars: ClassVar[str] = "google"

    def client(self) -> GCSStore:
        """A client of the bucket."""
        from obstore.store import GCSStore

        return GCSStore(self.bucket, config=self.client_options())  # type: ignore[arg-type]  # any of its options

    def client_options(self) -> dict[str, str]:
        """For delta-rs, Polars and obstore, which read the file of the key themselves."""
        found = {}
        if self.credentials_file:
            self._refuse_other_file()
            found["google_service_account"] = self.credentials_file
        if self.endpoint:
            found |= {"google_base_url": self.endpoint.rstrip("/"), "allow_http": str(self.is_plain).lower()}
        return found

    def hadoop_settings(self) -> dict[str, str]:
        """For Google's connector, which reads the file of the key itself."""
        found = {
            "fs.gs.impl": f"{_CONNECTOR}.GoogleHadoopFileSystem",  # Hadoop's own, the default, takes no endpoint
            "fs.AbstractFileSystem.gs.impl": f"{_CONNECTOR}.GoogleHadoopFS",
            "fs.gs.auth.type": "APPLICATION_DEFAULT",
        } | {f"fs.gs.{name}": str(size) for name, size in _SIZES.items()}
        if self.credentials_file:
            self._refuse_other_file()
            found |= {
                "fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE",
                "fs.gs.auth.service.account.json.keyfile": self.credentials_file,
            }
        if self.endpoint:
            found["fs.gs.storage.root.url"] = f"{self.endpoint.rstrip('/')}/"
        return {f"spark.hadoop.{name}": value for name, value in found.items()}

    def _refuse_other_file(self) -> None:
        """Raise unless the file is a service account's key: the clients would report it with its content, or late."""
        try:
            found = json.loads(Path(self.credentials_file).read_text(encoding="utf-8"))
        except (OSError, ValueError) as failure:
            raise unreadable(self.credentials_file, failure, _REMEDY) from None
        if not isinstance(found, dict) or found.get("type") != "service_account":
            raise SettingsError(
                "the credentials are not those of a service account",
                where=f"{OPTIONS}: credentials_file {self.credentials_file}",
                remedy=f"{_REMEDY}; name others by the variable GOOGLE_APPLICATION_CREDENTIALS instead",
            )
