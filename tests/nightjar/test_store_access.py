"""How each kind of store is reached, where no server can show it: Azure's identities, and unusable credentials."""

import configparser
from pathlib import Path
from zipfile import ZipFile

import pytest

from nightjar.configuration.settings import load_settings
from nightjar.jvm.jars import jars
from nightjar.rules.errors import SettingsError
from nightjar.storage.access import Access
from nightjar.storage.paths import access_of, place_of

AZURE = "abfss://files@account.dfs.core.windows.net/lake"
S3 = "s3://bucket/lake"
GOOGLE = "gs://bucket/lake"
HOST = "account.dfs.core.windows.net"
PREFIX = "spark.hadoop.fs.azure."


@pytest.fixture(autouse=True)
def _no_credentials_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of the machine that the tests run on."""
    for name in ("STORAGE_ACCOUNT_KEY", "STORAGE_SAS_TOKEN", "TENANT_ID", "CLIENT_ID", "CLIENT_SECRET"):
        monkeypatch.delenv(f"AZURE_{name}", raising=False)
    monkeypatch.delenv("AZURE_FEDERATED_TOKEN_FILE", raising=False)


def azure(folder: Path, **credentials: str) -> Access:
    """Azure's store with these credentials in a file; without any, with those of the machine."""
    options = {}
    if credentials:
        written = configparser.ConfigParser(interpolation=None)
        written["default"] = credentials
        with (folder / "credentials").open("w") as file:
            written.write(file)
        options = {"credentials_file": str(folder / "credentials")}
    found = access_of(place_of(AZURE, options))
    assert found is not None
    return found


def test_an_application_of_azure_is_known_to_every_client(tmp_path: Path) -> None:
    """Its secret is not among the settings that go on a command line."""
    found = azure(tmp_path, tenant_id="t", client_id="c", client_secret="hidden%1")
    assert found.client_options() == {
        "azure_storage_account_name": "account",
        "azure_storage_tenant_id": "t",
        "azure_storage_client_id": "c",
        "azure_storage_client_secret": "hidden%1",
    }
    assert found.hadoop_settings() == {
        f"{PREFIX}account.auth.type.{HOST}": "OAuth",
        f"{PREFIX}account.oauth.provider.type.{HOST}": (
            "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider"
        ),
        f"{PREFIX}account.oauth2.client.endpoint.{HOST}": "https://login.microsoftonline.com/t/oauth2/token",
        f"{PREFIX}account.oauth2.client.id.{HOST}": "c",
    }
    assert found.hadoop_secrets() == {f"fs.azure.account.oauth2.client.secret.{HOST}": "hidden%1"}


def test_a_shared_access_signature_is_known_to_every_client(tmp_path: Path) -> None:
    found = azure(tmp_path, sas_token="sv=2024&sig=a%2Fb")
    assert found.client_options()["azure_storage_sas_key"] == "sv=2024&sig=a%2Fb"
    assert found.hadoop_settings() == {f"{PREFIX}account.auth.type.{HOST}": "SAS"}
    assert found.hadoop_secrets() == {f"fs.azure.sas.fixed.token.{HOST}": "sv=2024&sig=a%2Fb"}


def test_without_a_file_azure_takes_the_environment_then_the_workload_then_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = f"{PREFIX}account.oauth.provider.type.{HOST}"
    found = azure(tmp_path)
    assert found.hadoop_settings()[provider].endswith(".MsiTokenProvider")
    monkeypatch.setenv("AZURE_CLIENT_ID", "c")
    monkeypatch.setenv("AZURE_TENANT_ID", "t")
    monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", "/var/run/token")
    assert found.hadoop_settings()[provider].endswith(".WorkloadIdentityTokenProvider")
    assert found.hadoop_settings()[f"{PREFIX}account.oauth2.token.file.{HOST}"] == "/var/run/token"
    assert found.hadoop_secrets() == {}
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    assert found.hadoop_settings() == {f"{PREFIX}account.auth.type.{HOST}": "SharedKey"}
    assert found.hadoop_secrets() == {f"fs.azure.account.key.{HOST}": "a2V5"}
    assert found.client_options()["azure_storage_account_key"] == "a2V5"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("account_key = hidden", "cannot be read (MissingSectionHeaderError)"),
        ("[other]\naccount_key = hidden", "cannot be read (KeyError)"),
        ("[default]\nclient_id = c\nclient_secret = hidden", "the credentials are incomplete"),
        ("[default]\naccount_key = hidden!", "the account_key is not base64"),
    ],
)
def test_an_unusable_file_of_azure_credentials_is_named_and_not_quoted(
    tmp_path: Path, content: str, message: str
) -> None:
    file = tmp_path / "credentials"
    file.write_text(content)
    found = access_of(place_of(AZURE, {"credentials_file": str(file)}))
    assert found is not None
    with pytest.raises(SettingsError, match=r"account_key = …, or sas_token = …") as refused:
        found.client_options()
    assert message in str(refused.value)
    assert str(file) in str(refused.value)
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{hidden", "cannot be read (JSONDecodeError)"),
        ('{"type": "authorized_user", "refresh_token": "hidden"}', "are not those of a service account"),
        ('["hidden"]', "are not those of a service account"),
    ],
)
def test_an_unusable_key_of_google_is_named_and_not_quoted(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "key.json"
    file.write_text(content)
    found = access_of(place_of(GOOGLE, {"credentials_file": str(file)}))
    assert found is not None
    for asked in (found.client_options, found.hadoop_settings):
        with pytest.raises(SettingsError, match="It is the key of a service account") as refused:
            asked()
        assert message in str(refused.value)
        assert str(file) in str(refused.value)
        assert "hidden" not in str(refused.value)


def test_without_a_file_google_takes_its_usual_chain() -> None:
    found = access_of(place_of(GOOGLE, {}))
    assert found is not None
    assert found.client_options() == {}
    assert found.hadoop_settings()["spark.hadoop.fs.gs.auth.type"] == "APPLICATION_DEFAULT"


@pytest.mark.parametrize("url", [S3, AZURE, GOOGLE])
def test_the_classes_that_spark_is_told_of_are_in_the_jars(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of identities, which no test can use."""
    (tmp_path / "key").write_text('{"type": "service_account"}' if url == GOOGLE else "[default]\naccount_key = a2V5\n")
    named = set()
    for options in ({}, {"credentials_file": str(tmp_path / "key")}):
        found = access_of(place_of(url, options))
        assert found is not None
        named |= {*found.hadoop_settings().values(), found.checkpoint_manager or ""}
        monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", "/var/run/token")
        named |= set(found.hadoop_settings().values())
    held = {name for jar in jars(found.jars) for name in ZipFile(jar).namelist()}
    classes = {name for name in named if name.startswith(("org.", "com.", "software."))}
    assert len(classes) == 2
    assert {f"{name.replace('.', '/')}.class" for name in classes} <= held


def test_a_missing_file_of_credentials_is_named() -> None:
    for url in (S3, AZURE, GOOGLE):
        found = access_of(place_of(url, {"credentials_file": "/nonexistent/credentials"}))
        assert found is not None
        with pytest.raises(SettingsError, match="/nonexistent/credentials: the credentials cannot be read"):
            found.client_options()


def test_options_are_checked_against_the_stores_in_use() -> None:
    """An option of another kind of store is refused, also where lake and checkpoint are in stores of two kinds."""
    assert load_settings(lake_dir=S3, storage_options={"region": "eu-west-1"}).storage_options
    for given in ({"lake_dir": AZURE}, {"lake_dir": S3, "checkpoint_dir": AZURE}):
        with pytest.raises(SettingsError, match="storage_options: region: unknown option for abfss://"):
            load_settings(**given, storage_options={"region": "eu-west-1"})
    with pytest.raises(SettingsError, match=r"profil: unknown option for s3://. Did you mean profile"):
        load_settings(storage_options={"profil": "default"})
