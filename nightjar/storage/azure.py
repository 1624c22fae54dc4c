"""Azure Data Lake Storage, and Azure's blobs without a hierarchical namespace.

The file of credentials has a section with an `account_key`, or a `sas_token`, or the `tenant_id`, `client_id` and
`client_secret` of an application. Without it they come from the environment, by the names of Azure's tools, from a
workload's identity, or from the machine's managed identity.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from nightjar.rules.errors import SettingsError
from nightjar.storage.access import OPTIONS, Access, section_of

if TYPE_CHECKING:
    from obstore.store import AzureStore

_HOST = "dfs.core.windows.net"
_LOGIN = "https://login.microsoftonline.com"
_PROVIDERS = "org.apache.hadoop.fs.azurebfs.oauth2"

# One set of these is in the file, or in the environment.
_APPLICATION = ("tenant_id", "client_id", "client_secret")
_SETS = (("account_key",), ("sas_token",), _APPLICATION)
_VARIABLES = {
    "account_key": "AZURE_STORAGE_ACCOUNT_KEY",
    "sas_token": "AZURE_STORAGE_SAS_TOKEN",
    "tenant_id": "AZURE_TENANT_ID",
    "client_id": "AZURE_CLIENT_ID",
    "client_secret": "AZURE_CLIENT_SECRET",
}
# Of a workload on Kubernetes, beside the tenant's and the application's id.
_IDENTITY_TOKEN = "AZURE_FEDERATED_TOKEN_FILE"  # noqa: S105  the name of a variable that names a file

# The names of the client that delta-rs, Polars and obstore share.
_OPTIONS = {
    "account_key": "azure_storage_account_key",
    "sas_token": "azure_storage_sas_key",
    "tenant_id": "azure_storage_tenant_id",
    "client_id": "azure_storage_client_id",
    "client_secret": "azure_storage_client_secret",
}


@dataclass(frozen=True)
class AzureAccess(Access):
    """bucket: container@account.dfs.core.windows.net. profile: the section of the file of credentials."""

    profile: str = "default"

    schemes: ClassVar[tuple[str, ...]] = ("abfss",)
    form: ClassVar[str] = f"container@account.{_HOST}/folder"
    bucket_pattern: ClassVar[re.Pattern[str]] = re.compile(
        rf"(?P<container>[a-z0-9][a-z0-9-]{{1,61}}[a-z0-9])@(?P<account>[a-z0-9]{{3,24}})\.{re.escape(_HOST)}"
    )
    jars: ClassVar[str] = "azure"

    @property
    def hadoop_root(self) -> str:
        """Over HTTP where the endpoint is an emulator's without TLS, which Hadoop knows by the scheme."""
        return f"{'abfs' if self.is_plain else 'abfss'}://{self.bucket}"

    def client(self) -> AzureStore:
        """A client of the container."""
        from obstore.store import AzureStore

        return AzureStore(self._part("container"), config=self.client_options())  # type: ignore[arg-type]

    def client_options(self) -> dict[str, str]:
        """For delta-rs, Polars and obstore."""
        account = self._part("account")
        found = {"azure_storage_account_name": account}
        if self.endpoint:
            found |= {
                "azure_storage_endpoint": f"{self.endpoint.rstrip('/')}/{account}",
                "azure_allow_http": str(self.is_plain).lower(),
            }
        return found | {_OPTIONS[name]: value for name, value in self._credentials().items()}

    def hadoop_settings(self) -> dict[str, str]:
        """For ABFS: which kind of credentials it uses, and where it finds the store."""
        given = self._credentials()
        if "account_key" in given:
            found = {"auth.type": "SharedKey"}
        elif "sas_token" in given:
            found = {"auth.type": "SAS"}
        else:
            found = {"auth.type": "OAuth"} | _identity(given)
        settings = {f"fs.azure.account.{name}.{self._host}": value for name, value in found.items()}
        if self.endpoint:
            # as of Azure's own emulator: blobs, without the interface for folders, and the account in the path
            settings |= {
                "fs.azure.abfs.endpoint": self.endpoint.partition("://")[2].rstrip("/"),
                "fs.azure.always.use.https": str(not self.is_plain).lower(),
                f"fs.azure.account.hns.enabled.{self._host}": "false",
                "fs.azure.fns.account.service.type": "BLOB",
            }
        if self.is_plain:  # its default fails without TLS
            settings["fs.azure.networking.library"] = "JDK_HTTP_URL_CONNECTION"
        return {f"spark.hadoop.{name}": value for name, value in settings.items()}

    def hadoop_secrets(self) -> dict[str, str]:
        """For ABFS, which cannot read them from a file."""
        names = {
            "account_key": "fs.azure.account.key",
            "sas_token": "fs.azure.sas.fixed.token",
            "client_secret": "fs.azure.account.oauth2.client.secret",
        }
        given = self._credentials()
        return {f"{hadoop}.{self._host}": given[name] for name, hadoop in names.items() if name in given}

    @property
    def _host(self) -> str:
        return self.bucket.partition("@")[2]

    def _part(self, name: str) -> str:
        found = self.bucket_pattern.fullmatch(self.bucket)
        if found is None:
            raise ValueError(f"{self.bucket} is not {self.form}")
        return found[name]

    def _credentials(self) -> dict[str, str]:
        """A set of credentials by our names; empty: those of the machine or the workload."""
        if not self.credentials_file:
            given = {name: os.environ[variable] for name, variable in _VARIABLES.items() if os.environ.get(variable)}
            return _complete_set(given)
        remedy = (
            f"It has a line [{self.profile}], then account_key = …, or sas_token = …, or the three tenant_id = …, "
            "client_id = … and client_secret = …"
        )
        found = _complete_set(section_of(self.credentials_file, self.profile, remedy))
        wrong = None if found else "incomplete"
        if not _is_base64(found.get("account_key", "")):
            wrong = "wrong: the account_key is not base64"
        if wrong:
            where = f"{OPTIONS}: credentials_file {self.credentials_file}"
            raise SettingsError(f"the credentials are {wrong}", where=where, remedy=remedy)
        return found


def _complete_set(given: Mapping[str, str]) -> dict[str, str]:
    """The first set of which all are given."""
    for names in _SETS:
        if all(given.get(name) for name in names):
            return {name: given[name] for name in names}
    return {}


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        return False
    return True


def _identity(given: Mapping[str, str]) -> dict[str, str]:
    """Hadoop's settings for an application, a workload on Kubernetes, or the machine."""
    if given:
        return {
            "oauth.provider.type": f"{_PROVIDERS}.ClientCredsTokenProvider",
            "oauth2.client.endpoint": f"{_LOGIN}/{given['tenant_id']}/oauth2/token",
            "oauth2.client.id": given["client_id"],
        }
    if file := os.environ.get(_IDENTITY_TOKEN):
        return {
            "oauth.provider.type": f"{_PROVIDERS}.WorkloadIdentityTokenProvider",
            "oauth2.msi.tenant": os.environ.get(_VARIABLES["tenant_id"], ""),
            "oauth2.client.id": os.environ.get(_VARIABLES["client_id"], ""),
            "oauth2.token.file": file,
        }
    return {"oauth.provider.type": f"{_PROVIDERS}.MsiTokenProvider"}
