"""Settings: where they come from, what is refused, and that the docs know them all."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from nightjar.configuration.kafka import kafka_config
from nightjar.configuration.settings import load_settings, settings_table
from nightjar.kafka.clients import admin
from nightjar.rules.errors import SettingsError

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("row", settings_table(), ids=lambda row: row[0])
def test_every_setting_is_documented_as_it_is(row: tuple[str, str, str]) -> None:
    """docs/reference/settings.md has a line with each setting's name, default and help."""
    name, default, text = row
    shown = f"`{default}`" if default else ""
    assert f"| `{name}` | {shown} | {text} |" in DOCS.read_text(encoding="utf-8").splitlines()


def test_docs_name_no_setting_that_is_gone() -> None:
    """The table in docs/reference/settings.md has no line beyond the settings."""
    table = DOCS.read_text(encoding="utf-8").partition("\n## ")[0]
    documented = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]
    assert documented == [name for name, _, _ in settings_table()]


def test_environment_wins_over_file_wins_over_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting is taken from the environment, else from nightjar.toml, else from the table."""
    Path("nightjar.toml").write_text('buckets = 7\nactivation_delay = "90s"\n')
    monkeypatch.setenv("NIGHTJAR_BUCKETS", "9")
    settings = load_settings()
    assert (settings.buckets, settings.activation_delay, settings.partitions) == (9, 90_000_000, 2)


def test_spark_s_own_settings_are_texts_under_dotted_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quoted or not, in a file or in the environment."""
    Path("nightjar.toml").write_text('[spark_conf]\nspark.executor.cores = 4\n"spark.speculation" = false\n')
    assert load_settings().spark_conf == {"spark.executor.cores": "4", "spark.speculation": "false"}
    monkeypatch.setenv("NIGHTJAR_SPARK_CONF", '{"spark.executor.memory": "2g"}')
    assert load_settings().spark_conf["spark.executor.memory"] == "2g"


def test_named_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NIGHTJAR_SETTINGS names the file to read instead of nightjar.toml."""
    Path("nightjar.toml").write_text("buckets = 7\n")
    (tmp_path / "other.toml").write_text("partitions = 3\n")
    monkeypatch.setenv("NIGHTJAR_SETTINGS", "other.toml")
    settings = load_settings()
    assert (settings.buckets, settings.partitions) == (None, 3)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("NIGHTJAR_BUKETS", "3", "NIGHTJAR_BUKETS: unknown setting. Did you mean buckets?"),
        ("NIGHTJAR_BUCKETS", "few", "NIGHTJAR_BUCKETS: 'few' is not valid"),
        ("NIGHTJAR_ACTIVATION_DELAY", "10", "as in 500ms, 10s"),
        ("NIGHTJAR_ARRIVAL", "mine", "should be 'broker' or 'producer'"),
        ("NIGHTJAR_SETTINGS", "gone.toml", "gone.toml: cannot be read"),
        ("NIGHTJAR_LAKE_DIR", "hdfs://name/lake", "NIGHTJAR_LAKE_DIR: 'hdfs://name/lake' is not valid"),
        (
            "NIGHTJAR_CHECKPOINT_DIR",
            "hdfs://name:8020/x",
            "a path (file:///folder is the same), on a cluster one that every machine mounts",
        ),
        ("NIGHTJAR_DATA_DIR", "file:///srv/nightjar", "URLs are not supported"),
        ("NIGHTJAR_STREAMS", "https://example.org/streams.toml", "URLs are not supported"),
        ("NIGHTJAR_KAFKA", "{", "take one JSON object each"),
        ("NIGHTJAR_KAFKA", '{"linger.ms": "5"}', "'linger.ms' is not a Kafka security setting"),
        ("NIGHTJAR_SPARK_CONF", '{"executor.memory": "2g"}', "'executor.memory' is not a Spark setting"),
        ("NIGHTJAR_SPARK_CONF", '{"spark.master": "yarn"}', "set spark.master with the setting spark_master"),
        ("NIGHTJAR_SPARK_CONF", '{"spark.authenticate.secret": "x"}', "Put it into spark-defaults.conf"),
    ],
)
def test_a_refusal_has_the_place_and_the_remedy(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, message: str
) -> None:
    """An unknown name or a value that cannot be is refused with the place and the remedy."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError) as refused:
        load_settings()
    assert message in str(refused.value)


@pytest.mark.parametrize("given", ["wasbs://lake@account/x", Path("hdfs://name/lake")])
def test_a_url_is_no_folder_wherever_it_is_given(given: str | Path) -> None:
    """Also in the file, and as a Path, which makes one slash of two: never a local folder called `hdfs:`."""
    with pytest.raises(SettingsError, match=r"lake_dir: .*: is not supported"):
        load_settings(lake_dir=given)
    Path("nightjar.toml").write_text(f'lake_dir = "{given}"\n')
    with pytest.raises(SettingsError, match=r"nightjar.toml: lake_dir: .*: is not supported"):
        load_settings()
    with pytest.raises(SettingsError, match=r"data_dir: .* URLs are not supported"):
        load_settings(data_dir="s3://bucket/data")


@pytest.mark.parametrize("given", ["lake", "/mnt/lake", "../lake", "a:b/c", "C:/lake"])
def test_a_path_is_taken_as_it_is(given: str) -> None:
    """A colon alone makes no URL."""
    assert load_settings(lake_dir=given).lake == Path(given)


@pytest.mark.parametrize(
    ("url", "is_valid"),
    [
        ("", True),
        ("https://schemas.example:8081/apis/ccompat/v7", True),
        ("http://schema-registry", True),
        ("schemas:8081", False),
        ("https://user:word@schemas", False),
        ("https://schemas /x", False),
    ],
)
def test_a_registry_has_a_url_without_a_login(url: str, is_valid: bool) -> None:
    """Its login is in a file."""
    if is_valid:
        assert load_settings(schema_registry=url).schema_registry == url
        return
    with pytest.raises(SettingsError, match="schema_registry"):
        load_settings(schema_registry=url)


def test_unknown_name_in_the_file_is_refused() -> None:
    """A mistyped name in nightjar.toml is not ignored."""
    Path("nightjar.toml").write_text("bucket = 7\n")
    with pytest.raises(SettingsError, match=r"nightjar.toml: bucket: unknown setting. Did you mean buckets\?"):
        load_settings()


def test_address_without_port_is_refused() -> None:
    """The brokers are written host:port."""
    with pytest.raises(SettingsError, match=r"'kafka' is not an address. Write host:port"):
        admin(load_settings(bootstrap_servers="kafka"))


SASL = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": 'x.security.scram.ScramLoginModule required username="me" password="hun\\"ter2";',
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": "/etc/ca.pem",
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": "/etc/me.pem",
    "ssl.endpoint.identification.algorithm": "",
}


def test_security_settings_reach_both_clients() -> None:
    """Kafka's own names are given to Spark as they are, and to kafka-python under its names."""
    settings = load_settings(bootstrap_servers="a:1,b:2", kafka=SASL)
    assert kafka_config(settings).python == {
        "bootstrap_servers": ["a:1", "b:2"],
        "reconnect_backoff_max_ms": 1000,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "me",
        "sasl_plain_password": 'hun"ter2',
        "ssl_cafile": "/etc/ca.pem",
        "ssl_certfile": "/etc/me.pem",
        "ssl_keyfile": "/etc/me.pem",
        "ssl_check_hostname": False,
    }
    assert kafka_config(settings).spark == {
        "kafka.bootstrap.servers": "a:1,b:2",
        **{f"kafka.{name}": value for name, value in SASL.items()},
    }


LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}


def test_a_login_has_its_password_in_a_file() -> None:
    """Both clients get it from there, whatever it contains, and the settings only know the file."""
    Path("word").write_text('hun"t\\er2\n')
    settings = load_settings(bootstrap_servers="a:1", kafka=LOGIN, kafka_username="me", kafka_password_file="word")
    options = kafka_config(settings).python
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("me", 'hun"t\\er2')
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    assert kafka_config(settings).spark["kafka.sasl.jaas.config"] == (
        f'{module} required username="me" password="hun\\"t\\\\er2";'
    )
    assert "er2" not in f"{settings!r}"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kafka_username": "me"}, "kafka_password_file: a login needs a name and a password"),
        ({"kafka_username": "me", "kafka_password_file": "gone"}, "kafka_password_file: gone: cannot be read"),
        ({"kafka_username": "me", "kafka_password_file": "empty"}, "kafka_password_file: empty: holds no password"),
        (
            {"kafka_username": "me", "kafka_password_file": "word", "kafka": SASL},
            "sasl.jaas.config: there is a second login",
        ),
        ({"kafka_username": "me", "kafka_password_file": "word", "kafka": {}}, "Set it to SCRAM-SHA-512"),
    ],
)
def test_half_a_login_is_refused(given: dict[str, Any], message: str) -> None:
    """With what is missing."""
    Path("word").write_text("hunter2")
    Path("empty").write_text("\n")
    with pytest.raises(SettingsError, match=message):
        kafka_config(load_settings(**{"bootstrap_servers": "a:1", "kafka": LOGIN, **given}))


def test_kafka_table_in_toml_needs_no_quotes() -> None:
    """`security.protocol = "SSL"` in the file's [kafka] table is Kafka's dotted name."""
    Path("nightjar.toml").write_text('[kafka]\nsecurity.protocol = "SSL"\nssl.key.password = "se-cret"\n')
    assert load_settings().kafka == {"security.protocol": SecretStr("SSL"), "ssl.key.password": SecretStr("se-cret")}


def test_passwords_are_never_shown() -> None:
    """Neither the settings' text, nor their dump, nor a refusal shows what Kafka is given to log in."""
    settings = load_settings(kafka=SASL)
    assert "ter2" not in f"{settings} {settings!r} {settings.model_dump()} {settings.model_dump_json()}"
    with pytest.raises(SettingsError) as refused:
        load_settings(kafka={"sasl.jaas.config": ["hunter2"]})
    assert "ter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("security", "message"),
    [
        (
            {"ssl.truststore.location": "/ca.jks"},
            "ssl.truststore.type: not every client can read formats",
        ),
        ({"sasl.mechanism": "OAUTHBEARER"}, "not every client supports OAUTHBEARER"),
        ({"sasl.mechanism": "PLAIN"}, "has no username and password"),
        ({"ssl.keystore.key": "-----BEGIN"}, "Put it in a PEM file"),
    ],
)
def test_what_only_one_client_could_do_is_refused(security: dict[str, str], message: str) -> None:
    """A login that kafka-python cannot make is refused, rather than left to fail in one of the two clients."""
    with pytest.raises(SettingsError, match=message):
        kafka_config(load_settings(bootstrap_servers="a:1", kafka=security))
